// Quads of a tile in workgroup memory, and what is done to each four.
fn load_weights(position: u32) -> Quads { return Quads(weights[position]); }
fn store_weights(position: u32, x: Quads) { weights[position] = x.a; }
fn load_maxima() -> Quads { return Quads(maxima[0]); }
fn each_weight(p: Quads) -> Quads { return Quads(weight4(p.a)); }
fn each_exponential(s: Quads, m: Quads) -> Quads { return Quads(exponential(s.a, m.a)); }
fn store_column(tile: Tile, kv_head: u32, column: u32, x: Quads) { store4(tile, kv_head, column, 0u, x.a); }
fn store_probabilities(position: u32, x: Quads) { probabilities[position] = x.a; }
