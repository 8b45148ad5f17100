// z = combined(x, y), a snippet's function: an invocation takes four columns of a row.
@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * GROUP + lane;
    if (i >= P.count) { return; }
    let row = i / FOURS;
    let column = (i % FOURS) * 4u;
    let outer = row / INNER;
    let inner = row % INNER;
    let left = WIDTH - column;
    let a = x_four(x_row(outer) + inner * X_WIDTH + column, left);
    let b = y_four(y_row(outer) + inner * Y_WIDTH + column, left);
    let value = vec4(combined(a.x, b.x), combined(a.y, b.y), combined(a.z, b.z), combined(a.w, b.w));
    z_put(z_row(outer) + inner * Z_WIDTH + column, left, value);
}
