//: needs ranking
// What a pass over a part of a row leaves behind, PART_WORDS each: its first place in rank order, its lowest finite key
// (all ones where there is none), and what it has seen.
const PART_WORDS = 4u;
const BEST_KEY = 0u;
const BEST_INDEX = 1u;
const LOWEST_KEY = 2u;
const SEEN = 3u;

const SEEN_NAN = 1u;
const SEEN_PLUS_INF = 2u;
const SEEN_FINITE = 4u;  // among the logits
const SEEN_BAD_BIAS = 8u;
const SEEN_BAD_COUNT = 16u;
const SEEN_TOKEN = 32u;  // a finite one after the bias

// Of many values: their lowest finite key, the bits of their largest magnitude, their highest key.
fn seen_between(lowest: u32, magnitude: u32, highest: u32) -> u32 {
    let nan = select(0u, SEEN_NAN, magnitude > 0x7f800000u);
    let plus_inf = select(0u, SEEN_PLUS_INF, highest == 0xff800000u);
    return nan | plus_inf | select(0u, SEEN_FINITE, lowest != 0xffffffffu);
}

fn seen_in(x: f32) -> u32 {
    if (is_finite(x)) { return SEEN_FINITE; }
    let bits = bitcast<u32>(x);
    if ((bits & 0x007fffffu) != 0u) { return SEEN_NAN; }
    return select(0u, SEEN_PLUS_INF, (bits >> 31u) == 0u);
}
