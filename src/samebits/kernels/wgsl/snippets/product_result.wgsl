// A sum becomes the result of a token and a row of the chunk; those beyond the ends are left out.
fn give(token: u32, row: u32, sum: f32) {
    if (token >= P.num_tokens || row >= P.num_rows) { return; }
    let column = P.first_row + row;
    var value = settle(sum);
    if (HAS_BIAS) { value = settle(add(value, bias_at(bias_row(column)))); }
    y[y_row(P.first_token + token) + column] = value;
}
