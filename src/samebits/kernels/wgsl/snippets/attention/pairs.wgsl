//: needs pages, opaque
// A tile is up to PAIRS pairs of a query and a head that share a KV head, of one sequence; four pairs are a vec4.
// Pair i of a sequence is query i / GROUP and head i % GROUP of the KV head's.
const PAIRS = 4u * G;

struct Tile {
    sequence: u32,
    first_row: u32,  // of q
    num_rows: i32,
    length: i32,
    first_pair: u32,
    num_pairs: u32,
}

var<workgroup> lows: array<vec4<i32>, G>;  // the first position that a pair sees
var<workgroup> highs: array<vec4<i32>, G>;  // the last one
var<workgroup> places: array<vec4<i32>, G>;  // its own position
var<workgroup> slopes4: array<vec4<f32>, G>;
var<workgroup> mask_rows: array<vec4<u32>, G>;  // where its row of the mask starts

// Tiles of a sequence follow each other from here on; the numbers of some stand for none.
fn first_tile(sequence: u32) -> u32 {
    return u32(i32(qo_at(qo_row(sequence)))) * GROUP / PAIRS + sequence;
}

fn tile_of(number: u32) -> Tile {
    var low = 0u;
    var high = P.num_sequences;
    while (low + 1u < high) {
        let middle = (low + high) / 2u;
        if (first_tile(middle) <= number) { low = middle; } else { high = middle; }
    }
    return tile_in(low, (number - first_tile(low)) * PAIRS);
}

fn tile_in(sequence: u32, first_pair: u32) -> Tile {
    let row = i32(qo_at(qo_row(sequence)));
    var num_rows = i32(qo_at(qo_row(sequence + 1u))) - row;
    var length = sequence_length(sequence);
    if (row < 0 || num_rows < 0 || row + num_rows > i32(P.num_tokens) || !is_listed(sequence)) {
        refuse(BAD_TABLE);
        num_rows = 0;
        length = 0;
    }
    if (CAUSAL && num_rows > length) {
        refuse(BAD_COUNT);
        num_rows = 0;
    }
    let all_pairs = u32(num_rows) * GROUP;
    let num_pairs = select(0u, min(all_pairs - first_pair, PAIRS), first_pair < all_pairs);
    return Tile(sequence, u32(row), num_rows, length, first_pair, num_pairs);
}

// Whether the table's numbers of a sequence are what ops/paged.py states.
fn is_listed(sequence: u32) -> bool {
    let last = i32(last_at(last_row(sequence)));
    var count = 1;
    var entry = 0;
    if (HAS_INDPTR) {
        entry = i32(indptr_at(indptr_row(sequence)));
        count = i32(indptr_at(indptr_row(sequence + 1u))) - entry;
    }
    let least = select(0, 1, HAS_INDPTR && count > 0);
    let most = select(0, i32(PAGE_SIZE), count > 0);
    let is_inside = !HAS_INDPTR || entry + count <= i32(P.num_entries);
    return entry >= 0 && count >= 0 && is_inside && last >= least && last <= most;
}

fn place_of(tile: Tile, pair: u32) -> i32 {
    return tile.length - tile.num_rows + i32((tile.first_pair + pair) / GROUP);
}

fn low_of(place: i32) -> i32 { return select(0, max(place - i32(P.window), 0), WINDOWED); }
fn high_of(tile: Tile, place: i32) -> i32 { return select(tile.length - 1, min(place, tile.length - 1), CAUSAL); }

fn head_of(tile: Tile, kv_head: u32, pair: u32) -> u32 { return kv_head * GROUP + (tile.first_pair + pair) % GROUP; }

// Entries of the custom mask before a sequence's.
fn mask_start(sequence: u32) -> u32 {
    var start = 0u;
    for (var b = 0u; b < sequence; b++) {
        start += u32(i32(qo_at(qo_row(b + 1u))) - i32(qo_at(qo_row(b)))) * u32(sequence_length(b));
    }
    return start;
}

// Lane g < G writes down four pairs.
fn note_pairs(tile: Tile, kv_head: u32, g: u32) {
    var low = vec4<i32>();
    var high = vec4<i32>();
    var place = vec4<i32>();
    var slope = vec4<f32>();
    var mask_row = vec4<u32>();
    var start = 0u;
    if (HAS_MASK) { start = mask_start(tile.sequence); }
    for (var j = 0u; j < opaque(4u); j++) {
        let pair = g * 4u + j;
        place[j] = place_of(tile, pair);
        low[j] = low_of(place[j]);
        high[j] = select(-1, high_of(tile, place[j]), pair < tile.num_pairs);
        mask_row[j] = start + (tile.first_pair + pair) / GROUP * u32(tile.length);
        if (HAS_SLOPES && pair < tile.num_pairs) {
            slope[j] = slopes_at(slopes_row(head_of(tile, kv_head, pair)));
            if (!is_finite(slope[j])) { refuse(BAD_SLOPES); }
        }
    }
    lows[g] = low;
    highs[g] = high;
    places[g] = place;
    slopes4[g] = slope;
    mask_rows[g] = mask_row;
}
