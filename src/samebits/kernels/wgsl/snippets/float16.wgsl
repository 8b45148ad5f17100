// float16 by integer operations: a device's own conversions may flush subnormals or round otherwise.
fn widen_f16(half: u32) -> f32 {
    let beyond = ((half & 0x8000u) << 16u) | ((half & 0x7fffu) << 13u) | 0x7f800000u;  // NaN and Inf
    let number = bitcast<u32>(widen_finite_f16(half));
    return bitcast<f32>(select(number, beyond, (half & 0x7fffu) >= 0x7c00u));
}

// Of numbers that are checked elsewhere to be neither NaN nor Inf.
fn widen_finite_f16(half: u32) -> f32 {
    let sign = (half & 0x8000u) << 16u;
    let rest = half & 0x7fffu;
    let tiny = f32(rest) * 5.9604644775390625e-8;  // a subnormal: its integer times 2^-24, exact
    return bitcast<f32>(select((rest << 13u) + 0x38000000u, bitcast<u32>(tiny), rest < 0x0400u) | sign);
}

// A settled float32 to float16, to nearest even; what rounds to zero is +0. Beyond 65504 it is Inf, NaN stays NaN.
fn narrow_f16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) { return sign | 0x7e00u; }
    if (magnitude >= 0x477ff000u) { return sign | 0x7c00u; }
    var half: u32;
    if (magnitude >= 0x38800000u) {
        half = (magnitude - 0x38000000u + 0x0fffu + ((magnitude >> 13u) & 1u)) >> 13u;
    } else if (magnitude < 0x33000001u) {
        return 0u;
    } else {
        let shift = 126u - (magnitude >> 23u);  // 14 to 24
        let mantissa = (magnitude & 0x007fffffu) | 0x00800000u;
        let kept = mantissa >> shift;
        let rest = mantissa & ((1u << shift) - 1u);
        let halfway = 1u << (shift - 1u);
        half = kept + select(0u, 1u, rest > halfway || (rest == halfway && (kept & 1u) == 1u));
        if (half == 0u) { return 0u; }
    }
    return sign | half;
}
