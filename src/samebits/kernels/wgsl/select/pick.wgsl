//: needs first_place, part_summary
// A workgroup takes a row: the index of the first place of its parts.
@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.z * groups.y + group.y;
    if (row >= P.num_rows) { return; }
    var best = NO_PLACE;
    for (var part = lane; part < P.num_parts; part += GROUP) {
        let at = (row * P.num_parts + part) * PART_WORDS;
        best = first_of(best, vec2(parts[at + BEST_KEY], parts[at + BEST_INDEX]));
        if ((parts[at + SEEN] & SEEN_NAN) != 0u) { refuse(NAN); }
    }
    let first = first_of_group(best, lane);
    if (lane == 0u) { indices[indices_row(row / P.inner) + row % P.inner] = i32(first.y); }
}
