//: needs elementary, rounding4, logarithm, attention/sinks
// The last step: results over the sums of p.
var<workgroup> factors: array<vec4<f32>, G>;  // what results are multiplied by

// 1 / l of pair j of four, 0 where it sees nothing; lse is stored.
fn finish_totals(tile: Tile, kv_head: u32, g: u32, sum: f32, j: u32) -> f32 {
    let pair = g * 4u + j;
    let maximum = maxima[g][j];
    var total = sum;
    if (HAS_SINKS && bitcast<u32>(maximum) != 0xff800000u) {
        total = add(total, exp_exact(sub(sink_of(tile, kv_head, pair), maximum)));
    }
    let is_empty = (bitcast<u32>(total) & 0x7fffffffu) == 0u;
    let divisor = select(total, 1.0, is_empty);
    if (HAS_LSE && pair < tile.num_pairs) {
        let found = settle(add(mul(maximum, 1.44269504), log2_exact(divisor)));
        let row = tile.first_row + (tile.first_pair + pair) / GROUP;
        store_lse(row, head_of(tile, kv_head, pair), select(found, minus_inf(), is_empty));
    }
    return select(recip(divisor), 0.0, is_empty);
}

fn store_one(tile: Tile, kv_head: u32, column: u32, pair: u32, value: f32) {
    if (pair >= tile.num_pairs || column >= DV) { return; }
    let row = tile.first_row + (tile.first_pair + pair) / GROUP;
    out[out_row(row) + head_of(tile, kv_head, pair) * DV + column] = value;
}

fn store4(tile: Tile, kv_head: u32, column: u32, g: u32, sum: vec4<f32>) {
    let x = settle4(mul4(sum, factors[g]));
    for (var j = 0u; j < opaque(4u); j++) { store_one(tile, kv_head, column, g * 4u + j, x[j]); }
}

// Lane g < G, with the sums of p of its pairs.
fn note_factors(tile: Tile, kv_head: u32, g: u32, l: vec4<f32>) {
    var found = vec4<f32>();
    for (var j = 0u; j < opaque(4u); j++) { found[j] = finish_totals(tile, kv_head, g, l[j], j); }
    factors[g] = found;
}
