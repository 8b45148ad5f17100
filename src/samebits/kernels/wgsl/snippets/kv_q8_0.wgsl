//: needs elementary, float16, int8_range
// A block of 32 into a q8_0 cache: d = float16(amax * (1/127)), code = rint(x * (127 * recip(amax))).
const CODE_WORDS = 8u;

fn extreme_of(values: ptr<function, array<f32, 32>>) -> f32 {
    var amax = 0u;
    for (var e = 0u; e < 32u; e++) { amax = max(amax, magnitude_bits((*values)[e])); }
    return bitcast<f32>(amax);
}

fn stored_scale(amax: f32) -> u32 { return select(0u, narrow_f16(mul(amax, 0.007874015718698502)), is_alive(amax)); }

fn code_factor(amax: f32) -> f32 {
    if (!is_alive(amax)) { return 0.0; }
    return mul(127.0, recip(amax));
}

fn code_word(values: ptr<function, array<f32, 32>>, word: u32, factor: f32) -> u32 {
    var codes = 0u;
    for (var j = 0u; j < 4u; j++) {
        codes |= (bitcast<u32>(nearest_integer(mul((*values)[word * 4u + j], factor))) & 0xffu) << (j * 8u);
    }
    return codes;
}
