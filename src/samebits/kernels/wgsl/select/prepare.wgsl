//: needs elementary, first_place, row_state, summaries
// A workgroup takes a row: what its parts have seen, the top and the spread, what is to be kept and how it is drawn.
var<workgroup> complement: atomic<u32>;  // of the lowest key
var<workgroup> all_seen: atomic<u32>;

fn put(row: u32, field: u32, value: u32) { state[row * STATE_WORDS + field] = value; }

// Buckets per unit for a spread of values; one bucket where it is none.
fn scale_of(spread: f32) -> u32 {
    let within = min(max(spread, 1e-15), 1e30);
    return bitcast<u32>(mul(255.0, recip(within)));
}

@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.z * groups.y + group.y;
    if (row >= P.num_rows) { return; }
    if (lane == 0u) {  // drivers leave there what an earlier workgroup left
        atomicStore(&complement, 0u);
        atomicStore(&all_seen, 0u);
    }
    workgroupBarrier();
    var best = NO_PLACE;
    var seen = 0u;
    var lowest_key = 0xffffffffu;
    for (var part = 0u; part < P.num_parts; part++) {
        let at = summary_at(row, part, lane);
        best = first_of(best, vec2(summaries[at + BEST_KEY], summaries[at + BEST_INDEX]));
        lowest_key = min(lowest_key, summaries[at + LOWEST_KEY]);
        seen |= select(summaries[at + SEEN], u32(notes_at(row * P.num_parts + part)), HAS_NOTES);
    }
    atomicMax(&complement, ~lowest_key);
    atomicOr(&all_seen, seen);
    let first = first_of_group(best, lane);  // waits for all of them
    if (lane != 0u) { return; }
    let top = value_of(first.x);
    let lowest = value_of(~atomicLoad(&complement));
    let spread = select(0.0, sub(top, lowest), is_finite(top) && is_finite(lowest));
    put(row, LAST_KEY, 0u);
    put(row, LAST_INDEX, 0xffffffffu);
    put(row, TOP, bitcast<u32>(top));
    put(row, COUNT_SCALE, scale_of(spread));
    put(row, MASS_SCALE, scale_of(min(spread, 22.0)));  // exp(-22) * 2^28 rounds to 0
    set_settings(row, atomicLoad(&all_seen));
}
