@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * GROUP + lane;
    if (i >= P.count) { return; }
    let row = i / WIDTH;
    let column = i % WIDTH;
    let a = x_at(x_row(row) + column);
    let b = y_at(y_row(row) + column);
    var value: f32;
    if (IS_ADD) { value = add(a, b); }
    if (IS_MUL) { value = mul(a, b); }
    if (IS_SCALE) { value = mul(a, P.factor); }
    z[z_row(row) + column] = settle(value);
}
