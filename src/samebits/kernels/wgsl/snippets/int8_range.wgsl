// The range of a block's largest magnitude, see docs/numerics.md, section 4. By bits, so that NaN is above all.
const SMALLEST_AMAX = 0x2a000000u;  // 2^-43: a block below it is zeros
const LARGEST_AMAX = 0x67800000u;  // 2^80: a block beyond it is refused

fn magnitude_bits(x: f32) -> u32 { return bitcast<u32>(x) & 0x7fffffffu; }
fn in_range(amax: f32) -> bool { return magnitude_bits(amax) <= LARGEST_AMAX; }
fn is_alive(amax: f32) -> bool { return magnitude_bits(amax) >= SMALLEST_AMAX && in_range(amax); }

// rint(x), half to even, for |x| < 2^22.
fn nearest_integer(x: f32) -> i32 {
    return bitcast<i32>(add(x, 12582912.0)) - 0x4b400000;
}
