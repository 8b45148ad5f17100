//: needs shaping
// A workgroup takes a part of a row of logits: bias and penalties, and what it has seen.
var<workgroup> all_seen: atomic<u32>;

@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.z * groups.y + group.y;
    if (row >= P.num_rows) { return; }
    if (lane == 0u) { atomicStore(&all_seen, 0u); }  // drivers leave there what an earlier workgroup left
    workgroupBarrier();
    let end = min((group.x + 1u) * PART, P.length);
    var seen = 0u;
    for (var c = group.x * PART + lane; c < end; c += GROUP) {
        var x = x_at(x_row(row) + c);
        seen |= seen_in(x);
        if (HAS_BIAS) {
            let bias = bias_at(bias_row(row) + c);
            x = biased(x, bias);
            seen |= seen_in_bias(bias);
        }
        if (is_finite(x)) { seen |= SEEN_TOKEN; }
        if (HAS_COUNTS) {
            let count = i32(counts_at(counts_row(row) + c));
            x = penalized(x, count, row);
            seen |= seen_in_count(count);
        }
        shaped[shaped_row(row) + c] = x;
    }
    atomicOr(&all_seen, seen);
    workgroupBarrier();
    if (lane == 0u) { notes[row * P.num_parts + group.x] = atomicLoad(&all_seen); }
}
