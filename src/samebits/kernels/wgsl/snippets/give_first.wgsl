// The index of the first in rank order.
fn give(outer: u32, inner: u32, rank: u32, index: u32, x: f32) {
    if (rank == 0u) { indices[indices_row(outer) + inner] = i32(index); }
}
