//: needs rounding4, int8_block, attention/pairs
// q . k for q8_0 and q4_0 keys: q in int8 blocks, exact integer sums, eight block terms a chain, chunks in order.
// A tile has four pairs.
const BLOCKS = (D + 31u) / 32u;
const K_WORDS = select(4u, 8u, K_Q8);  // of a block's codes

var<workgroup> query_codes: array<vec4<u32>, BLOCKS * 8u>;  // [word][four pairs]
var<workgroup> query_sums: array<vec4<i32>, BLOCKS>;  // of a block's codes
var<workgroup> query_scales: array<vec4<f32>, BLOCKS>;

fn key_is_bad() -> bool { return false; }  // a score says it

fn four_of_query(start: u32, e: u32) -> vec4<f32> {
    var four = vec4<f32>();
    for (var j = 0u; j < opaque(4u); j++) {
        if (e + j < D) { four[j] = q_at(start + e + j); }
    }
    return four;
}

// All lanes put the tile's queries down.
fn note_queries(tile: Tile, kv_head: u32, lane: u32) {
    for (var nth = lane; nth < BLOCKS; nth += LANES) {
        var sums = vec4<i32>();
        var scales = vec4<f32>();
        for (var j = 0u; j < opaque(4u); j++) {
            if (j >= tile.num_pairs) {
                for (var w = 0u; w < opaque(8u); w++) { query_codes[nth * 8u + w][j] = 0u; }
                continue;
            }
            let row = tile.first_row + (tile.first_pair + j) / GROUP;
            let start = q_row(row) + head_of(tile, kv_head, j) * D;
            var amax = 0u;
            for (var w = 0u; w < opaque(8u); w++) {
                amax = max(amax, magnitude_of_four(four_of_query(start, nth * 32u + w * 4u)));
            }
            if (amax > LARGEST_AMAX) { refuse(BAD_QUERY); }
            let factor = code_factor(amax);
            scales[j] = block_scale(amax);
            for (var w = 0u; w < opaque(8u); w++) {
                let word = four_codes(four_of_query(start, nth * 32u + w * 4u), factor);
                query_codes[nth * 8u + w][j] = word;
                sums[j] += dot4I8Packed(word, 0x01010101u);
            }
        }
        query_sums[nth] = sums;
        query_scales[nth] = scales;
    }
}

fn dots(word: u32, codes: vec4<u32>) -> vec4<i32> {
    return vec4(
        dot4I8Packed(word, codes.x), dot4I8Packed(word, codes.y),
        dot4I8Packed(word, codes.z), dot4I8Packed(word, codes.w),
    );
}

// Integer sums of block `nth` of the key against four pairs.
fn block_sums(block: u32, nth: u32) -> vec4<i32> {
    let at = nth * 8u;
    var sums = vec4<i32>();
    for (var w = 0u; w < K_WORDS; w++) {
        let word = k[block * K_WORDS + w];
        if (K_Q8) {
            sums += dots(word, query_codes[at + w]);
        } else {
            sums += dots(word & 0x0f0f0f0fu, query_codes[at + w]);
            sums += dots((word >> 4u) & 0x0f0f0f0fu, query_codes[at + w + 4u]);
        }
    }
    return select(sums - 8 * query_sums[nth], sums, K_Q8);
}

fn take_queries() {}

fn scores_at(cell: u32) -> Quads {
    var total = vec4<f32>();
    var chunk = vec4<f32>();
    for (var nth = 0u; nth < opaque(BLOCKS); nth++) {
        let scale = bitcast<f32>(k[P.k_scales + cell + nth]);
        let factor = mul4(vec4(scale), query_scales[nth]);
        chunk = add4(chunk, mul4(vec4<f32>(block_sums(cell + nth, nth)), factor));
        if (nth % 8u == 7u) {
            total = add4(total, chunk);
            chunk = vec4<f32>();
        }
    }
    return Quads(add4(total, chunk));
}
