//: needs elementary, float16, int8_range
// A block of 32 into a q4_0 cache: x* is the first element of largest magnitude, d = float16(x* * (-1/8)),
// code = min(rint(x * (-8 * recip(x*))) + 8, 15); elements 0 to 15 in the low halves of bytes.
const CODE_WORDS = 4u;

fn extreme_of(values: ptr<function, array<f32, 32>>) -> f32 {
    var extreme = (*values)[0];
    for (var e = 1u; e < 32u; e++) {
        if (magnitude_bits((*values)[e]) > magnitude_bits(extreme)) { extreme = (*values)[e]; }
    }
    return extreme;
}

fn stored_scale(extreme: f32) -> u32 { return select(0u, narrow_f16(mul(extreme, -0.125)), is_alive(extreme)); }

fn code_factor(extreme: f32) -> f32 {
    if (!is_alive(extreme)) { return 0.0; }
    let steps = mul(8.0, recip(bitcast<f32>(magnitude_bits(extreme))));
    return select(-steps, steps, bitcast<u32>(extreme) >= 0x80000000u);
}

fn code_of(x: f32, factor: f32) -> u32 { return u32(min(nearest_integer(mul(x, factor)) + 8, 15)); }

fn code_word(values: ptr<function, array<f32, 32>>, word: u32, factor: f32) -> u32 {
    var codes = 0u;
    for (var j = 0u; j < 4u; j++) {
        let e = word * 4u + j;
        let pair = code_of((*values)[e], factor) | (code_of((*values)[e + 16u], factor) << 4u);
        codes |= pair << (j * 8u);
    }
    return codes;
}
