//: needs elementary
// log, log2 and softplus as core/numerics/elementary.py defines them. Arguments of the first two are normal, or 0.

// log(1 + f) for sqrt(1/2) - 1 <= f <= sqrt(2) - 1.
fn log1p_poly(f: f32) -> f32 {
    let f2 = mul(f, f);
    var p = -0.07634497433900833;
    p = add(mul(p, f), 0.127615824341774);
    p = add(mul(p, f), -0.13160184025764465);
    p = add(mul(p, f), 0.14201757311820984);
    p = add(mul(p, f), -0.16623356938362122);
    p = add(mul(p, f), 0.20001226663589478);
    p = add(mul(p, f), -0.2500081956386566);
    p = add(mul(p, f), 0.3333333134651184);
    return sub(f, sub(mul(0.5, f2), mul(mul(f2, f), p)));
}

// x = 2^e * (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2): (e, f).
fn split_log(x: f32) -> vec2<f32> {
    let pattern = bitcast<i32>(x);
    let exponent = (pattern - 0x3f3504f3) >> 23u;
    return vec2(f32(exponent), sub(bitcast<f32>(pattern - (exponent << 23u)), 1.0));
}

fn minus_inf_at_zero(x: f32, value: f32) -> f32 {
    return bitcast<f32>(select(bitcast<u32>(value), 0xff800000u, (bitcast<u32>(x) & 0x7fffffffu) == 0u));
}

fn log_exact(x: f32) -> f32 {
    let parts = split_log(x);
    let low = add(mul(parts.x, -2.12194440e-4), log1p_poly(parts.y));
    return minus_inf_at_zero(x, add(mul(parts.x, 0.693359375), low));
}

// Exact at powers of two.
fn log2_exact(x: f32) -> f32 {
    let parts = split_log(x);
    return minus_inf_at_zero(x, add(parts.x, mul(log1p_poly(parts.y), 1.44269504)));
}

// log(1 + e^x) as max(x, 0) + log1p(e^-|x|).
fn softplus(x: f32) -> f32 {
    let t = exp_exact(-abs(x));
    let near_two = t > 0.41421356;  // 1 + t beyond sqrt(2): halve it, exactly
    let log1p = log1p_poly(select(t, sub(mul(0.5, t), 0.5), near_two));
    return add(max(x, 0.0), select(log1p, add(0.693359375, add(-2.12194440e-4, log1p)), near_two));
}
