//: needs first_place, part_summary, scanning, settings
// A workgroup takes a part of a row, times 1 / temperature: the first place, with noise where nothing else decides, and
// the lowest value.
var<workgroup> complement: atomic<u32>;  // of the lowest key
var<workgroup> all_seen: atomic<u32>;

struct Extent {
    best: vec2<u32>,
    lowest: u32,
    magnitude: u32,  // the bits of the largest
}

// Of the elements of an invocation. Called with a constant for is_plain: lanes without branches of their own would
// compute the noise for every row.
fn extent_of(part: u32, lane: u32, row: u32, is_plain: bool) -> Extent {
    let end = min((part + 1u) * PART, P.length);
    let factor = factor_of(row);
    let start = row_start(row);
    var noise_key: vec2<u32>;
    if (is_plain) { noise_key = noise_key_of(row); }
    var found = Extent(NO_PLACE, 0xffffffffu, 0u);
    for (var c = part * PART + lane; c < end; c += GROUP) {
        let x = scaled_at(start + c, factor);
        var key = key_of(x);
        found.lowest = min(found.lowest, select(0xffffffffu, key, is_finite(x)));
        found.magnitude = max(found.magnitude, bitcast<u32>(x) & 0x7fffffffu);
        if (is_plain) { key = select(key, key_of(add(x, gumbel(noise_key, c))), is_finite(x)); }
        found.best = select(found.best, vec2(key, c), key > found.best.x);  // of equal ones the lowest came first
    }
    return found;
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
    var found: Extent;
    if (HAS_TEMPERATURE && is_plain(row)) {
        found = extent_of(group.x, lane, row, true);
    } else {
        found = extent_of(group.x, lane, row, false);
    }
    atomicMax(&complement, ~found.lowest);
    atomicOr(&all_seen, seen_between(found.lowest, found.magnitude, found.best.x));
    let first = first_of_group(found.best, lane);  // waits for all of them
    if (lane == 0u) {
        let at = (row * P.num_parts + group.x) * PART_WORDS;
        parts[at + BEST_KEY] = first.x;
        parts[at + BEST_INDEX] = first.y;
        parts[at + LOWEST_KEY] = ~atomicLoad(&complement);
        parts[at + SEEN] = atomicLoad(&all_seen);
    }
}
