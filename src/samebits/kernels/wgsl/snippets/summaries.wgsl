//: needs ranking
// What an invocation leaves behind of its elements of a part of a row: the first place in rank order, the lowest finite
// key (all ones where there is none), and what it has seen.
const SUMMARY_WORDS = 4u;
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

fn summary_at(row: u32, part: u32, lane: u32) -> u32 {
    return ((row * P.num_parts + part) * GROUP + lane) * SUMMARY_WORDS;
}

// What the bits of many values tell.
struct Bits {
    highest: i32,  // +Inf or more where there is one
    least: u32,  // magnitude
    most: u32,
}

const NO_BITS = Bits(0, 0xffffffffu, 0u);

fn widened(bits: Bits, of_value: u32) -> Bits {
    let magnitude = of_value & 0x7fffffffu;
    return Bits(max(bits.highest, bitcast<i32>(of_value)), min(bits.least, magnitude), max(bits.most, magnitude));
}

fn seen_in_bits(bits: Bits) -> u32 {
    let nan = select(0u, SEEN_NAN, bits.most > 0x7f800000u);
    let plus_inf = select(0u, SEEN_PLUS_INF, bits.highest >= 0x7f800000);
    return nan | plus_inf | select(0u, SEEN_FINITE, bits.least < 0x7f800000u);
}

fn seen_in(x: f32) -> u32 {
    if (is_finite(x)) { return SEEN_FINITE; }
    let bits = bitcast<u32>(x);
    if ((bits & 0x007fffffu) != 0u) { return SEEN_NAN; }
    return select(0u, SEEN_PLUS_INF, (bits >> 31u) == 0u);
}
