//: needs elementary, rounding4, logarithm, attention/pairs, attention/logits, attention/octets
// A workgroup takes a tile of pairs over all positions they see, LANES at a time. First the exact maximum; then, scores
// made once more, exponentials (a lane is a position) and their products with values (a lane is eight columns).
const OCTETS = (DV_STORED + 7u) / 8u;  // at most LANES

var<workgroup> weights: array<vec4<f32>, LANES * G>;  // P by position, rounded for values; maxima before
var<workgroup> probabilities: array<vec4<f32>, LANES * G>;  // p
var<workgroup> cells: array<u32, LANES>;  // where values lie; NO_PAGE where no pair looks
var<workgroup> maxima: array<vec4<f32>, G>;
var<workgroup> factors: array<vec4<f32>, G>;

fn sink_of(tile: Tile, kv_head: u32, pair: u32) -> f32 {
    if (!HAS_SINKS || pair >= tile.num_pairs) { return minus_inf(); }
    let sink = sinks_at(sinks_row(head_of(tile, kv_head, pair)));
    if (!is_finite(sink) && bitcast<u32>(sink) != 0xff800000u) { refuse(BAD_SINKS); }
    return sink;
}

fn sinks_of(tile: Tile, kv_head: u32, g: u32) -> vec4<f32> {
    let pair = g * 4u;
    return vec4(
        sink_of(tile, kv_head, pair), sink_of(tile, kv_head, pair + 1u),
        sink_of(tile, kv_head, pair + 2u), sink_of(tile, kv_head, pair + 3u),
    );
}

// Logits of the position, and in `page` where its value is: NO_PAGE where no pair looks.
fn logits_at(tile: Tile, kv_head: u32, position: i32, page: ptr<function, u32>) -> Quads {
    *page = NO_PAGE;
    var scores = none_of_quads();
    var is_bad = false;
    if (position < tile.length) {
        *page = page_of(tile.sequence, u32(position) / PAGE_SIZE);
        if (*page != NO_PAGE) {
            scores = scores_at(k_row(*page) + K_FIRST + (u32(position) % PAGE_SIZE) * K_SLOT + kv_head * K_HEAD);
            is_bad = key_is_bad();
        }
    }
    let found = each_logit(scores, position);
    if (found.is_seen && *page == NO_PAGE) { refuse(BAD_PAGE); }
    if (found.is_seen && (is_bad || found.is_bad)) { refuse(BAD_SCORE); }
    *page = select(NO_PAGE, *page, found.is_seen);
    return found.s;
}

// The pairs' maxima over positions first .. last, and their sinks.
fn find_maxima(tile: Tile, kv_head: u32, lane: u32, first: i32, last: i32) {
    var found = same_for_quads(minus_inf());
    for (var chunk = first; chunk <= last; chunk += i32(LANES)) {
        var page: u32;
        found = max_quads(found, logits_at(tile, kv_head, chunk + i32(lane), &page));
    }
    store_weights(lane, found);
    workgroupBarrier();
    if (lane < G) {
        var largest = sinks_of(tile, kv_head, lane);
        for (var other = 0u; other < LANES; other++) { largest = max(largest, weights[other * G + lane]); }
        maxima[lane] = largest;
    }
    workgroupBarrier();
}

// p and P of the lane's position, for all lanes to read.
fn note_weights(tile: Tile, kv_head: u32, lane: u32, position: i32) {
    var page: u32;
    let s = logits_at(tile, kv_head, position, &page);
    let p = each_exponential(s, load_maxima());
    store_probabilities(lane, p);
    store_weights(lane, each_weight(p));
    let slot = V_FIRST + (u32(position) % PAGE_SIZE) * V_SLOT + kv_head * V_HEAD;
    cells[lane] = select(v_row(page) + slot, NO_PAGE, page == NO_PAGE);
}

// 1 / l of four pairs, 0 where they see nothing; lse is stored.
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
    store_one(tile, kv_head, column, g * 4u, x.x);
    store_one(tile, kv_head, column, g * 4u + 1u, x.y);
    store_one(tile, kv_head, column, g * 4u + 2u, x.z);
    store_one(tile, kv_head, column, g * 4u + 3u, x.w);
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let kv_head = group.y;
    let tile = tile_of(group.x);
    if (tile.num_pairs == 0u) { return; }
    if (lane < G) { note_pairs(tile, kv_head, lane); }
    note_queries(tile, kv_head, lane);
    let first = low_of(place_of(tile, 0u)) / i32(LANES) * i32(LANES);
    let last = high_of(tile, place_of(tile, tile.num_pairs - 1u));
    workgroupBarrier();
    take_queries();
    find_maxima(tile, kv_head, lane, first, last);

    var sums = no_sums();
    var cut = no_sums();
    var total = vec4<f32>();  // of p, of four pairs: lanes below G
    var cut_total = vec4<f32>();
    for (var chunk = first; chunk <= last; chunk += i32(LANES)) {
        note_weights(tile, kv_head, lane, chunk + i32(lane));
        workgroupBarrier();
        if (lane < G) {
            for (var start = 0u; start < LANES; start += 16u) {
                var run = vec4<f32>();
                for (var i = start; i < start + 16u; i++) { run = add4(run, probabilities[i * G + lane]); }
                cut_total = add4(cut_total, run);
            }
        }
        if (lane < OCTETS) {
            for (var start = 0u; start < LANES; start += 16u) {
                var run = no_sums();
                for (var i = start; i < start + 16u; i++) {
                    run = add_values(run, load_weights(i), octet_at(cells[i], lane));
                }
                cut = add_sums(cut, run);
            }
        }
        if ((u32(chunk) + LANES) % 256u == 0u) {
            total = add4(total, cut_total);
            cut_total = vec4<f32>();
            sums = add_sums(sums, cut);
            cut = no_sums();
        }
        workgroupBarrier();
    }
    if (lane < G) {
        let l = add4(total, cut_total);
        factors[lane] = vec4(
            finish_totals(tile, kv_head, lane, l.x, 0u), finish_totals(tile, kv_head, lane, l.y, 1u),
            finish_totals(tile, kv_head, lane, l.z, 2u), finish_totals(tile, kv_head, lane, l.w, 3u),
        );
    }
    workgroupBarrier();
    if (lane < OCTETS) {
        let found = add_sums(sums, cut);
        store_column(tile, kv_head, column_of(lane, 0u), found.a);
        store_column(tile, kv_head, column_of(lane, 1u), found.b);
        store_column(tile, kv_head, column_of(lane, 2u), found.c);
        store_column(tile, kv_head, column_of(lane, 3u), found.d);
        store_column(tile, kv_head, column_of(lane, 4u), found.e);
        store_column(tile, kv_head, column_of(lane, 5u), found.f);
        store_column(tile, kv_head, column_of(lane, 6u), found.g);
        store_column(tile, kv_head, column_of(lane, 7u), found.h);
    }
}
