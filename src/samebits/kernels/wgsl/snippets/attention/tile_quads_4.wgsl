// Quads of a tile in workgroup memory, and what is done to each four.
fn load_weights(position: u32) -> Quads {
    let at = position * 4u;
    return Quads(weights[at], weights[at + 1u], weights[at + 2u], weights[at + 3u]);
}
fn store_weights(position: u32, x: Quads) {
    let at = position * 4u;
    weights[at] = x.a;
    weights[at + 1u] = x.b;
    weights[at + 2u] = x.c;
    weights[at + 3u] = x.d;
}
fn load_maxima() -> Quads { return Quads(maxima[0], maxima[1], maxima[2], maxima[3]); }
fn each_weight(p: Quads) -> Quads { return Quads(weight4(p.a), weight4(p.b), weight4(p.c), weight4(p.d)); }
fn each_exponential(s: Quads, m: Quads) -> Quads {
    return Quads(
        exponential(s.a, m.a), exponential(s.b, m.b), exponential(s.c, m.c), exponential(s.d, m.d),
    );
}
fn store_column(tile: Tile, kv_head: u32, column: u32, x: Quads) {
    store4(tile, kv_head, column, 0u, x.a);
    store4(tile, kv_head, column, 1u, x.b);
    store4(tile, kv_head, column, 2u, x.c);
    store4(tile, kv_head, column, 3u, x.d);
}
fn store_probabilities(position: u32, x: Quads) {
    let at = position * 4u;
    probabilities[at] = x.a;
    probabilities[at + 1u] = x.b;
    probabilities[at + 2u] = x.c;
    probabilities[at + 3u] = x.d;
}
