//: needs row_state, scanning
// A workgroup takes a part of a row: what ranks after the last place kept becomes -Inf.
@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.z * groups.y + group.y;
    if (row >= P.num_rows) { return; }
    let end = min((group.x + 1u) * PART, P.length);
    let last = last_place(row);
    let start = row_start(row);
    let into = y_row(row / P.inner) + (row % P.inner) * P.length;
    for (var c = group.x * PART + lane; c < end; c += GROUP) {
        let x = x_at(start + c);
        let is_dropped = ranks_before(last, vec2(key_of(x), c));
        y[into + c] = bitcast<f32>(select(bitcast<u32>(x), 0xff800000u, is_dropped));
    }
}
