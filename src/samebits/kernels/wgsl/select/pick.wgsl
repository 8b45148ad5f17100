//: needs first_place, summaries
// A workgroup takes a row: the index of the first place of its summaries.
@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.z * groups.y + group.y;
    if (row >= P.num_rows) { return; }
    var best = NO_PLACE;
    for (var part = 0u; part < P.num_parts; part++) {
        let at = summary_at(row, part, lane);
        best = first_of(best, vec2(summaries[at + BEST_KEY], summaries[at + BEST_INDEX]));
        if ((summaries[at + SEEN] & SEEN_NAN) != 0u) { refuse(NAN); }
    }
    let first = first_of_group(best, lane);
    if (lane == 0u) { indices[indices_row(row / P.inner) + row % P.inner] = i32(first.y); }
}
