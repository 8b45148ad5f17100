//: needs ranking
// An invocation takes an element of a short row: its rank is the number of elements before it.
@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * GROUP + lane;
    if (i >= P.num_rows * LENGTH) { return; }
    let row = i / LENGTH;
    let outer = row / P.inner;
    let inner = row % P.inner;
    let start = x_row(outer) + inner * LENGTH;
    let x = x_at(start + i % LENGTH);
    if (!is_finite(x) && (bitcast<u32>(x) & 0x007fffffu) != 0u) { refuse(NAN); }
    let place = vec2(key_of(x), i % LENGTH);
    var rank = 0u;
    for (var c = 0u; c < LENGTH; c++) { rank += u32(ranks_before(vec2(key_of(x_at(start + c)), c), place)); }
    give(outer, inner, rank, place.y, x);
}
