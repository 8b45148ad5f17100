//: needs ranking
// What is known of a row while its last place kept is searched for; STATE_WORDS each, in `state`.
const LAST_KEY = 0u;  // the last place kept: behind all while everything is
const LAST_INDEX = 1u;
const TOP = 2u;  // bits of the largest value
const COUNT_SCALE = 3u;  // bits: buckets per unit below the top, for counts and for masses
const MASS_SCALE = 4u;
const FACTOR = 5u;  // bits of 1 / temperature
const IS_DRAWN = 6u;  // 1: noise decides, not the largest value
const NUM_KEPT = 7u;  // of top-k; 0: no such filter
const SHARE = 8u;  // of top-p, out of 2^16; 0: no such filter
const LEAST = 9u;  // bits of min-p
const LOW_KEY = 10u;  // of the bucket where the last place kept is; above HIGH_KEY where nothing is to be found
const HIGH_KEY = 11u;
const NEED = 12u;  // two words: what is missing before the bucket's own weight
const NOISE_KEY = 14u;  // two words
const STATE_WORDS = 16u;

// A row as scans of it need it.
struct Row {
    top: f32,
    factor: f32,
    last: vec2<u32>,  // the last place that the filters so far keep
}

fn row_of(row: u32) -> Row { return Row(state_value(row, TOP), state_value(row, FACTOR), last_place(row)); }

fn state_word(row: u32, field: u32) -> u32 { return state[row * STATE_WORDS + field]; }
fn state_value(row: u32, field: u32) -> f32 { return bitcast<f32>(state_word(row, field)); }
fn last_place(row: u32) -> vec2<u32> { return vec2(state_word(row, LAST_KEY), state_word(row, LAST_INDEX)); }

// Whether a round, of counts or of masses, has something to find.
fn is_wanted(row: u32, is_mass: bool) -> bool { return state_word(row, select(NUM_KEPT, SHARE, is_mass)) != 0u; }
