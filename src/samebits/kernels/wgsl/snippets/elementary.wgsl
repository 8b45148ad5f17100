// exp, recip and rsqrt as core/numerics/elementary.py defines them.
const ROUND_MAGIC = 12582912.0;

fn exp_exact(x: f32) -> f32 {
    let clamped = min(max(x, -34.5), 88.0);
    let shifted = add(mul(clamped, 1.44269504), ROUND_MAGIC);
    let n = sub(shifted, ROUND_MAGIC);
    let r = sub(sub(clamped, mul(n, 0.693359375)), mul(n, -2.12194440e-4));
    var p = 0.0013950602151453495;
    p = add(mul(p, r), 0.008368954062461853);
    p = add(mul(p, r), 0.04166620597243309);
    p = add(mul(p, r), 0.166665181517601);
    p = add(mul(p, r), 0.5);
    let mantissa = add(1.0, add(r, mul(mul(r, r), p)));
    let exponent = bitcast<u32>(shifted) - 0x4b400000u;
    let result = bitcast<u32>(mantissa) + (exponent << 23u);
    return bitcast<f32>(select(select(result, 0x7f800000u, x > 88.0), 0u, x < -34.5));
}

// 1 / x for 2^-100 to 2^100.
fn recip(x: f32) -> f32 {
    var y = bitcast<f32>(0x7ef311c7u - bitcast<u32>(x));
    for (var i = 0; i < 4; i++) { y = add(y, mul(y, sub(1.0, mul(x, y)))); }
    return y;
}

// 1 / sqrt(x) for 2^-100 and more; finite at 0.
fn rsqrt(x: f32) -> f32 {
    var y = bitcast<f32>(0x5f3759dfu - (bitcast<u32>(x) >> 1u));
    for (var i = 0; i < 3; i++) { y = add(y, mul(mul(0.5, y), sub(1.0, mul(mul(x, y), y)))); }
    return y;
}
