//: needs rounding4
// Rows of K elements, INNER of them in a row of the first axis.

// residual += x, and what it is then.
fn added(row: u32, c: u32) -> vec4<f32> {
    let inner = (row % INNER) * K + c;
    let at = residual_row(row / INNER) + inner;
    let total = settle4(add4(residual_four(at, K - c), x_four(x_row(row / INNER) + inner, K - c)));
    residual_put(at, K - c, total);
    return total;
}
