//: needs elementary
fn sigmoid(x: f32) -> f32 {
    let t = exp_exact(-abs(x));
    let r = recip(add(1.0, t));
    return select(r, mul(t, r), x < 0.0);
}

fn silu(x: f32) -> f32 { return mul(x, sigmoid(x)); }
