//: needs scanning, settings, summaries
// A workgroup takes a part of a row, times 1 / temperature: the first place of every invocation, with noise where nothing
// else decides, and its lowest value. None waits for another.

struct Extent {
    best: vec2<u32>,
    lowest: u32,
    bits: Bits,  // of the elements as they are
}

// Of the elements of an invocation. Called with a constant for is_plain: lanes without branches of their own would
// compute the noise for every row.
fn extent_of(part: u32, lane: u32, row: u32, is_plain: bool) -> Extent {
    let end = min((part + 1u) * PART, P.length);
    let factor = factor_of(row);
    let start = row_start(row);
    var noise_key: vec2<u32>;
    if (is_plain) { noise_key = noise_key_of(row); }
    var found = Extent(NO_PLACE, 0xffffffffu, NO_BITS);
    for (var c = part * PART + lane; c < end; c += GROUP) {
        let given = x_at(start + c);
        found.bits = widened(found.bits, bitcast<u32>(given));
        let x = scaled(given, factor);
        var key = key_of(x);
        found.lowest = min(found.lowest, select(0xffffffffu, key, is_finite(x)));
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
    var found: Extent;
    if (HAS_TEMPERATURE && is_plain(row)) {
        found = extent_of(group.x, lane, row, true);
    } else {
        found = extent_of(group.x, lane, row, false);
    }
    let at = summary_at(row, group.x, lane);
    summaries[at + BEST_KEY] = found.best.x;
    summaries[at + BEST_INDEX] = found.best.y;
    summaries[at + LOWEST_KEY] = found.lowest;
    summaries[at + SEEN] = seen_in_bits(found.bits);
}
