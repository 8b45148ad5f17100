//: needs ranking, scanning
// An invocation takes a winner from the list of a part of a row: its rank is the number of winners before it.
@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.z * groups.y + group.y;
    if (row >= P.num_rows) { return; }
    let start = row_start(row);
    let row_list = row * P.num_parts * (P.list_length + 1u);
    let own = row_list + (group.x / P.groups_per_list) * (P.list_length + 1u);
    let i = (group.x % P.groups_per_list) * GROUP + lane;
    if (i >= lists[own]) { return; }
    let index = lists[own + 1u + i];
    let x = x_at(start + index);
    var rank = 0u;
    for (var part = 0u; part < P.num_parts; part++) {
        let list = row_list + part * (P.list_length + 1u);
        for (var j = 1u; j <= lists[list]; j++) {
            let other = lists[list + j];
            rank += u32(ranks_before(vec2(key_of(x_at(start + other)), other), vec2(key_of(x), index)));
        }
    }
    let place = (row % P.inner) * P.k + rank;
    values[values_row(row / P.inner) + place] = x;
    indices[indices_row(row / P.inner) + place] = i32(index);
}
