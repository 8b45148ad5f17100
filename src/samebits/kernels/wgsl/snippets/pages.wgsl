// Where a sequence's tokens lie. Tables last, indptr and indices are ops/paged.py's; without the last two, page b is
// sequence b. P.num_sequences, P.num_entries, P.num_pages and PAGE_SIZE are the sizes behind them.
const NO_PAGE = 0xffffffffu;

// Tokens of a sequence that is there; never negative.
fn sequence_length(sequence: u32) -> i32 {
    let last = i32(last_at(last_row(sequence)));
    if (!HAS_INDPTR) { return max(last, 0); }
    let count = i32(indptr_at(indptr_row(sequence + 1u))) - i32(indptr_at(indptr_row(sequence)));
    return select(0, max((count - 1) * i32(PAGE_SIZE) + last, 0), count > 0);
}

// The page of a sequence's nth page, or NO_PAGE where the table names none that is there.
fn page_of(sequence: u32, nth: u32) -> u32 {
    var page = sequence;
    if (HAS_INDPTR) {
        let entry = u32(i32(indptr_at(indptr_row(sequence)))) + nth;
        if (entry >= P.num_entries) { return NO_PAGE; }
        page = u32(i32(indices_at(indices_row(entry))));
    }
    return select(NO_PAGE, page, page < P.num_pages);
}
