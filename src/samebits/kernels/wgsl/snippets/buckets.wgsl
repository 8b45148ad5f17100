//: needs elementary, row_state
// Values of a row in 256 buckets, in the order of the ranking.
struct Buckets {
    top: f32,
    scale: f32,  // buckets per unit below the top
}

fn buckets_of(row: u32) -> Buckets {
    return Buckets(state_value(row, TOP), state_value(row, select(COUNT_SCALE, MASS_SCALE, IS_MASS)));
}

// Falls with x. Any function that does gives the same result in the end.
fn bucket_of(x: f32, buckets: Buckets) -> u32 {
    if (!is_finite(x)) { return (bitcast<u32>(x) >> 31u) * 255u; }
    if (!is_finite(buckets.top)) { return 255u; }
    return u32(min(mul(sub(buckets.top, x), buckets.scale), 255.0));
}
