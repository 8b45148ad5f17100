//: needs row_state, scanning
// A workgroup takes a part of a row: the number of what lies in the chosen bucket, or of all that is kept, and then their
// indices. Where they are too many for the list, the number tells.
var<workgroup> count: atomic<u32>;

@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.z * groups.y + group.y;
    if (row >= P.num_rows) { return; }
    let of_row = row_of(row);
    let low = select(state_word(row, LOW_KEY), of_row.last.x, IS_OF_KEPT);
    let high = select(state_word(row, HIGH_KEY), 0xffffffffu, IS_OF_KEPT);
    if (low > high) { return; }
    if (lane == 0u) { atomicStore(&count, 0u); }
    workgroupBarrier();
    let start = row_start(row);
    let end = min((group.x + 1u) * PART, P.length);
    let list = (row * P.num_parts + group.x) * (P.list_length + 1u);
    var c = group.x * PART + lane;
    loop {
        c = next_between(c, end, start, of_row.factor, low, high);
        if (c >= end) { break; }
        if (!IS_OF_KEPT || !ranks_before(of_row.last, vec2(key_of(scaled_at(start + c, of_row.factor)), c))) {
            let slot = atomicAdd(&count, 1u);
            if (slot < P.list_length) { lists[list + 1u + slot] = c; }
        }
        c += GROUP;
    }
    workgroupBarrier();
    if (lane == 0u) { lists[list] = atomicLoad(&count); }
}
