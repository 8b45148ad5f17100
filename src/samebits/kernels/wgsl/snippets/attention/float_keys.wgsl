//: needs rounding4, float16, bfloat16, attention/pairs
// q . k for f32, f16 and bf16 keys, in head order: runs of 8, each a chain, joined by an adjacent-pair tree.
const RUNS = (D + 7u) / 8u;
const QUADS = (RUNS + 3u) / 4u;  // of runs
const LARGEST_HALF = select(0x5f00u, 0x7bffu, K_F16);  // 2^63 as bfloat16, 65504

var<workgroup> queries: array<vec4<f32>, QUADS * 32u * G>;  // [element][four pairs], rounded to the keys' type
// The same, the lane's own, which is read faster, and is registers where all indices are constants. It is written full of
// zeros, element by element: for larger heads compilers take many seconds.
const OWNS = QUADS <= 8u;
var<private> own: array<Quads, select(1u, QUADS * 32u, OWNS)>;
var<private> largest_key: u32;  // pattern of a magnitude, of the keys at one position

fn key_is_bad() -> bool { return largest_key > select(LARGEST_HALF, 0x7f7fffffu, K_F32); }

fn query_operand(x: f32) -> f32 {
    if (K_F32) {
        if (!is_finite(x)) { refuse(BAD_QUERY); }
        return x;
    }
    let half = select(narrow_bf16(x), narrow_f16(x), K_F16);
    if ((half & 0x7fffu) > LARGEST_HALF) { refuse(BAD_QUERY); }
    return select(widen_bf16(half), widen_f16(half), K_F16);
}

// All lanes put the tile's queries down.
fn note_queries(tile: Tile, kv_head: u32, lane: u32) {
    for (var i = lane; i < QUADS * 32u * G; i += LANES) {
        let e = i / G;
        var four = vec4<f32>();
        for (var j = 0u; j < opaque(4u); j++) {
            let pair = (i % G) * 4u + j;
            if (e < D && pair < tile.num_pairs) {
                let row = tile.first_row + (tile.first_pair + pair) / GROUP;
                four[j] = query_operand(q_at(q_row(row) + head_of(tile, kv_head, pair) * D + e));
            }
        }
        queries[i] = four;
    }
}

fn widen_key(half: u32) -> f32 {
    if (K_F16) { return widen_finite_f16(half); }
    return widen_bf16(half);
}

fn own_8(e: u32) {
    own[e] = query_quads(e);
    own[e + 1u] = query_quads(e + 1u);
    own[e + 2u] = query_quads(e + 2u);
    own[e + 3u] = query_quads(e + 3u);
    own[e + 4u] = query_quads(e + 4u);
    own[e + 5u] = query_quads(e + 5u);
    own[e + 6u] = query_quads(e + 6u);
    own[e + 7u] = query_quads(e + 7u);
}

fn own_32(e: u32) {
    own_8(e);
    if (e + 8u < D) { own_8(e + 8u); }
    if (e + 16u < D) { own_8(e + 16u); }
    if (e + 24u < D) { own_8(e + 24u); }
}

// A lane takes the queries that all lanes put down.
fn take_queries() {
    if (!OWNS) { return; }
    if (QUADS <= 2u || QUADS == 4u) {
        own_32(0u);
        if (QUADS > 1u) { own_32(32u); }
        if (QUADS > 2u) {
            own_32(64u);
            own_32(96u);
        }
    } else {
        for (var quad = 0u; quad < QUADS; quad++) { own_32(quad * 32u); }
    }
}

fn query_at(e: u32) -> Quads {
    if (OWNS) { return own[e]; }
    return query_quads(e);
}

fn add_term(sum: Quads, query: Quads, key: f32) -> Quads {
    if (K_F32) { return add_rounded(sum, query, key); }
    return add_exact(sum, query, key);  // of 16-bit numbers
}

// A run of 8 against all pairs.
fn run_at(cell: u32, run: u32) -> Quads {
    var keys: array<f32, 8>;
    if (K_F32) {
        let low = key_quad(cell, run * 2u);
        let high = key_quad(cell, run * 2u + 1u);
        let magnitudes = max(low & vec4(0x7fffffffu), high & vec4(0x7fffffffu));
        largest_key = max(largest_key, max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w)));
        let a = bitcast<vec4<f32>>(low);
        let b = bitcast<vec4<f32>>(high);
        keys = array<f32, 8>(a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w);
    } else {
        let words = key_quad(cell, run);
        let low = words & vec4(0xffffu);
        let high = words >> vec4(16u);
        let magnitudes = max(low & vec4(0x7fffu), high & vec4(0x7fffu));
        largest_key = max(largest_key, max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w)));
        keys = array<f32, 8>(
            widen_key(low.x), widen_key(high.x), widen_key(low.y), widen_key(high.y),
            widen_key(low.z), widen_key(high.z), widen_key(low.w), widen_key(high.w),
        );
    }
    let e = run * 8u;
    var sum = add_term(none_of_quads(), query_at(e), keys[0]);
    sum = add_term(sum, query_at(e + 1u), keys[1]);
    sum = add_term(sum, query_at(e + 2u), keys[2]);
    sum = add_term(sum, query_at(e + 3u), keys[3]);
    sum = add_term(sum, query_at(e + 4u), keys[4]);
    sum = add_term(sum, query_at(e + 5u), keys[5]);
    sum = add_term(sum, query_at(e + 6u), keys[6]);
    return add_term(sum, query_at(e + 7u), keys[7]);
}

// The tree above four runs; those behind the last are +0.
fn quad_at(cell: u32, quad: u32) -> Quads {
    let none = none_of_quads();
    let first = quad * 4u;
    var nodes = run_at(cell, first);
    if (RUNS > 1u) {
        var others = none;
        if (first + 1u < RUNS) { others = run_at(cell, first + 1u); }
        nodes = add_quads(nodes, others);
    }
    if (RUNS > 2u) {
        var others = none;
        if (first + 2u < RUNS) { others = run_at(cell, first + 2u); }
        if (first + 3u < RUNS) { others = add_quads(others, run_at(cell, first + 3u)); }
        nodes = add_quads(nodes, others);
    }
    return nodes;
}

// Of quads, in pairs of pairs; what waits for its right neighbour lies in w1 to w16.
fn scores_at(cell: u32) -> Quads {
    largest_key = 0u;
    if (QUADS == 1u) { return quad_at(cell, 0u); }
    if (QUADS == 2u) { return add_quads(quad_at(cell, 0u), quad_at(cell, 1u)); }
    if (QUADS == 4u) {
        let left = add_quads(quad_at(cell, 0u), quad_at(cell, 1u));
        return add_quads(left, add_quads(quad_at(cell, 2u), quad_at(cell, 3u)));
    }
    let none = none_of_quads();
    var w1 = none;
    var w2 = none;
    var w4 = none;
    var w8 = none;
    var w16 = none;
    var node = none;
    var end = 4u;
    while (end < QUADS) { end *= 2u; }
    for (var quad = 0u; quad < end; quad++) {
        node = none;
        if (quad < QUADS) { node = quad_at(cell, quad); }
        if ((quad & 1u) == 0u) { w1 = node; continue; }
        node = add_quads(w1, node);
        if ((quad & 2u) == 0u) { w2 = node; continue; }
        node = add_quads(w2, node);
        if ((quad & 4u) == 0u) { w4 = node; continue; }
        node = add_quads(w4, node);
        if ((quad & 8u) == 0u) { w8 = node; continue; }
        node = add_quads(w8, node);
        if ((quad & 16u) == 0u) { w16 = node; continue; }
        node = add_quads(w16, node);
    }
    return node;
}
