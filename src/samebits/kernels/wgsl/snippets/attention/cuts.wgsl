//: needs attention/pairs
// Decode goes by cuts of 256 positions, for sequences with one query. Cuts of a sequence follow each other from
// first_cut on; the numbers of some stand for none. All numbers are of four pairs: a vec4.
struct Cut {
    number: u32,
    first: i32,  // position
    last: i32,  // the last one that is seen; below `first` where there is nothing to do
}

fn first_cut(sequence: u32) -> u32 {
    var entry = sequence;
    if (HAS_INDPTR) { entry = u32(i32(indptr_at(indptr_row(sequence)))); }
    return entry * PAGE_SIZE / 256u + sequence;
}

fn sequence_of_cut(number: u32) -> u32 {
    var low = 0u;
    var high = P.num_sequences;
    while (low + 1u < high) {
        let middle = (low + high) / 2u;
        if (first_cut(middle) <= number) { low = middle; } else { high = middle; }
    }
    return low;
}

// Those of a sequence that its query sees: first, and behind the last.
fn seen_cuts(tile: Tile) -> vec2<u32> {
    if (tile.num_rows != 1) { return vec2(0u); }
    let place = place_of(tile, 0u);
    return vec2(u32(low_of(place)) / 256u, u32(high_of(tile, place) + 256) / 256u);
}

fn cut_of(tile: Tile, number: u32) -> Cut {
    let nth = number - first_cut(tile.sequence);
    let seen = seen_cuts(tile);
    let first = i32(nth * 256u);
    let is_seen = nth >= seen.x && nth < seen.y;
    return Cut(number, first, select(first - 1, min(first + 255, high_of(tile, place_of(tile, 0u))), is_seen));
}
