//: needs summaries, row_state
// The settings of rows that an op's attr gives.
fn set_settings(row: u32, seen: u32) {
    if ((seen & SEEN_NAN) != 0u) { refuse(NAN); }
    put(row, FACTOR, bitcast<u32>(1.0));
    put(row, NUM_KEPT, P.k);
    put(row, SHARE, 0u);
}
