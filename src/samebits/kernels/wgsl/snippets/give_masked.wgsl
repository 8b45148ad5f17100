// The first P.k where they stand, -Inf for the others.
fn give(outer: u32, inner: u32, rank: u32, index: u32, x: f32) {
    y[y_row(outer) + inner * LENGTH + index] = bitcast<f32>(select(0xff800000u, bitcast<u32>(x), rank < P.k));
}
