//: needs elementary, summaries
// A logit with its bias and its penalties. -Inf stays.
fn biased(x: f32, bias: f32) -> f32 {
    if (!is_finite(x)) { return x; }
    if (!is_finite(bias)) { return bitcast<f32>((bitcast<u32>(bias) & 0x7f800000u) | 0x80000000u); }  // -Inf
    return settle(add(x, bias));
}

fn penalized(x: f32, count: i32, row: u32) -> f32 {
    if (count <= 0 || !is_finite(x)) { return x; }
    let repetition = repetition_at(repetition_row(row));
    let repeated = mul(x, select(repetition, recip(repetition), x > 0.0));
    let often = mul(f32(count), frequency_at(frequency_row(row)));
    return settle(sub(sub(repeated, often), presence_at(presence_row(row))));
}

fn seen_in_bias(bias: f32) -> u32 {
    return select(SEEN_BAD_BIAS, 0u, is_finite(bias) || bitcast<u32>(bias) == 0xff800000u);
}

fn seen_in_count(count: i32) -> u32 { return select(0u, SEEN_BAD_COUNT, count < 0 || count > 16777216); }
