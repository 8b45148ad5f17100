//: needs attention/cuts, attention/sinks
// The maxima of a sequence's query over all its cuts, and its sinks: one lane writes them down.
fn note_maxima(tile: Tile, kv_head: u32) {
    let seen = seen_cuts(tile);
    var largest = sinks_of(tile, kv_head, 0u);
    for (var nth = seen.x; nth < seen.y; nth++) {
        let unit = kv_head * P.num_cuts + first_cut(tile.sequence) + nth;
        largest = max(largest, bitcast<vec4<f32>>(cut_maxima[unit]));
    }
    maxima[0] = largest;
}
