//: needs elementary
// NaN stays NaN: the clamps may drop it, so it is looked for by bits.
fn tanh_exact(x: f32) -> f32 {
    let z = min(max(x, -0.625), 0.625);
    let z2 = mul(z, z);
    var p = -0.005717042367905378;
    p = add(mul(p, z2), 0.020650584250688553);
    p = add(mul(p, z2), -0.05374349653720856);
    p = add(mul(p, z2), 0.13331490755081177);
    p = add(mul(p, z2), -0.3333328366279602);
    let small = add(z, mul(mul(z, z2), p));
    let pattern = bitcast<u32>(x);
    let magnitude = pattern & 0x7fffffffu;
    let t = exp_exact(mul(-2.0, bitcast<f32>(magnitude)));
    let large = mul(sub(1.0, t), recip(add(1.0, t)));
    let with_sign = bitcast<u32>(large) | (pattern & 0x80000000u);
    let result = select(with_sign, bitcast<u32>(small), magnitude < 0x3f200000u);  // 0.625
    return bitcast<f32>(select(result, pattern, magnitude > 0x7f800000u));
}

// cap * tanh(settle(settle(s) * recip(cap))); the host gives both factors, the second by the canonical recip.
fn soft_capped(s: f32, cap: f32, inv_cap: f32) -> f32 {
    return mul(cap, tanh_exact(settle(mul(settle(s), inv_cap))));
}
