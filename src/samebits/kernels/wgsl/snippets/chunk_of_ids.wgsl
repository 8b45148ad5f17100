// Which dispatch serves an id: that of the chunk which holds its row. The first one sees to ids of no row: -1 is padding.
fn is_of_chunk(id: i32) -> bool { return id >= i32(P.first_row) && id < i32(P.first_row + P.num_rows); }
fn is_to_clear(id: i32) -> bool {
    let is_outside = id < 0 || id >= i32(P.num_ids);
    if (P.first_row == 0u && is_outside && id != -1) { refuse(OUTSIDE); }
    return P.first_row == 0u && is_outside;
}
