//: needs elementary, int8_range
// A block of 32 floats in int8, as docs/numerics.md, section 4 states it. Magnitudes are ordered as their patterns are.

fn magnitude_of_four(v: vec4<f32>) -> u32 {
    let m = bitcast<vec4<u32>>(v) & vec4(0x7fffffffu);
    return max(max(m.x, m.y), max(m.z, m.w));
}

// What to multiply an element by for its code, from the block's largest magnitude.
fn code_factor(amax: u32) -> f32 {
    let is_zeros = amax < SMALLEST_AMAX;
    return select(mul(127.0, recip(bitcast<f32>(select(amax, 0x3f800000u, is_zeros)))), 0.0, is_zeros);
}

fn block_scale(amax: u32) -> f32 {
    return select(0.0, mul(bitcast<f32>(amax), 0.007874015748031496), amax >= SMALLEST_AMAX);
}

// Four codes in a word: rounded to integers half to even by adding 1.5 * 2^23, whose pattern ends in a byte of 0.
fn four_codes(v: vec4<f32>, factor: f32) -> u32 {
    let x = bitcast<u32>(add(mul(v.x, factor), ROUND_MAGIC)) & 0xffu;
    let y = bitcast<u32>(add(mul(v.y, factor), ROUND_MAGIC)) & 0xffu;
    let z = bitcast<u32>(add(mul(v.z, factor), ROUND_MAGIC)) & 0xffu;
    let w = bitcast<u32>(add(mul(v.w, factor), ROUND_MAGIC)) & 0xffu;
    return x | (y << 8u) | (z << 16u) | (w << 24u);
}
