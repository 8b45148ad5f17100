//: needs sigmoid, erf
// x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 * x^3), which is 0.5 * x * (1 + tanh u).
fn gelu_tanh(x: f32) -> f32 {
    let u = mul(0.7978845608028654, add(x, mul(0.044715, mul(mul(x, x), x))));
    return mul(x, sigmoid(add(u, u)));
}

fn gelu_erf(x: f32) -> f32 { return mul(mul(0.5, x), erfc_exact(-mul(x, 0.7071067811865476))); }
