// bfloat16 is the upper half of a float32.
fn widen_bf16(half: u32) -> f32 { return bitcast<f32>(half << 16u); }

// To nearest even; NaN stays NaN. A settled number stays at 2^-50 and more.
fn narrow_bf16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) { return (bits >> 16u) | 0x0040u; }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
