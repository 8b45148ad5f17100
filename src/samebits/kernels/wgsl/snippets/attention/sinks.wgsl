//: needs attention/pairs, attention/logits
// The exact maxima, and the sinks that take part in them.
var<workgroup> maxima: array<vec4<f32>, G>;

fn sink_of(tile: Tile, kv_head: u32, pair: u32) -> f32 {
    if (!HAS_SINKS || pair >= tile.num_pairs) { return minus_inf(); }
    let sink = sinks_at(sinks_row(head_of(tile, kv_head, pair)));
    if (!is_finite(sink) && bitcast<u32>(sink) != 0xff800000u) { refuse(BAD_SINKS); }
    return sink;
}

fn sinks_of(tile: Tile, kv_head: u32, g: u32) -> vec4<f32> {
    var found = vec4<f32>();
    for (var j = 0u; j < opaque(4u); j++) { found[j] = sink_of(tile, kv_head, g * 4u + j); }
    return found;
}
