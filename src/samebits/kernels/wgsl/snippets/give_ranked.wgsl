// The first P.k, in rank order.
fn give(outer: u32, inner: u32, rank: u32, index: u32, x: f32) {
    if (rank < P.k) {
        values[values_row(outer) + inner * P.k + rank] = x;
        indices[indices_row(outer) + inner * P.k + rank] = i32(index);
    }
}
