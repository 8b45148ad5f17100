//: needs pages, rotary
// A token's cell in a paged cache, and the elements that go there, turned where R > 0.

// Units from the cache's start to the token's slot of its first head; NO_PAGE where nothing is stored: a sequence of
// -1 is padding, any other wrong place is refused.
fn cell_of(token: u32) -> u32 {
    let sequence = i32(batch_at(batch_row(token)));
    let position = i32(positions_at(positions_row(token)));
    if (sequence < 0 || u32(sequence) >= P.num_sequences) {
        if (sequence != -1) { refuse(NO_SEQUENCE); }
        return NO_PAGE;
    }
    if (position < 0 || position >= sequence_length(u32(sequence))) {
        refuse(OUTSIDE_SEQUENCE);
        return NO_PAGE;
    }
    let page = page_of(u32(sequence), u32(position) / PAGE_SIZE);
    if (page == NO_PAGE) {
        refuse(NOT_A_PAGE);
        return NO_PAGE;
    }
    return cache_row(page) + CACHE_FIRST + (u32(position) % PAGE_SIZE) * CACHE_SLOT;
}

// Where the token's row of the rotary table starts; NO_PAGE where it is not turned.
fn angles_of(token: u32) -> u32 {
    if (R == 0u) { return NO_PAGE; }
    let position = i32(pos_ids_at(pos_ids_row(token)));
    if (position < 0 || u32(position) >= P.num_angles) {
        if (position != -1) { refuse(OUTSIDE_TABLE); }
        return NO_PAGE;
    }
    return angles_row(u32(position));
}

// Element e of a head that starts at `start`; 0 behind its end.
fn turned(start: u32, e: u32, angles: u32) -> f32 {
    if (e >= D) { return 0.0; }
    let x = x_at(start + e);
    if (e >= 2u * R || angles == NO_PAGE) { return x; }
    let is_first = select(e < R, (e & 1u) == 0u, INTERLEAVE);
    let pair = select(select(e - R, e, is_first), e >> 1u, INTERLEAVE);
    let step = select(R, 1u, INTERLEAVE);
    let other = x_at(start + select(e - step, e + step, is_first));
    return rotated(x, other, angles_at(angles + 2u * pair), angles_at(angles + 2u * pair + 1u), is_first);
}
