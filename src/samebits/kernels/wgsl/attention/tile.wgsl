//: needs elementary, rounding4, logarithm, attention/pairs, attention/logits
// A workgroup takes a tile of pairs over all positions they see, LANES at a time. First the exact maximum; then, scores
// made once more, exponentials (a lane is a position) and their products with values (a lane is a word of columns).
const WORDS_PER_LANE = (V_WORDS + LANES - 1u) / LANES;
const SUMS = WORDS_PER_LANE * COLUMNS * G;

var<workgroup> weights: array<vec4<f32>, LANES * G>;  // P by position, rounded for values; maxima before
var<workgroup> probabilities: array<f32, LANES * PAIRS>;  // p
var<workgroup> cells: array<u32, LANES>;  // where values lie; NO_PAGE where no pair looks
var<workgroup> maxima: array<vec4<f32>, G>;
var<workgroup> factors: array<f32, PAIRS>;

fn sink_of(tile: Tile, kv_head: u32, pair: u32) -> f32 {
    if (!HAS_SINKS || pair >= tile.num_pairs) { return minus_inf(); }
    let sink = sinks_at(sinks_row(head_of(tile, kv_head, pair)));
    if (!is_finite(sink) && bitcast<u32>(sink) != 0xff800000u) { refuse(BAD_SINKS); }
    return sink;
}

// The pairs' maxima over positions first .. last, and their sinks.
fn find_maxima(tile: Tile, kv_head: u32, lane: u32, first: i32, last: i32) {
    var found: array<vec4<f32>, G>;
    for (var g = 0u; g < G; g++) { found[g] = vec4(minus_inf()); }
    for (var chunk = first; chunk <= last; chunk += i32(LANES)) {
        let logits = logits_at(tile, kv_head, chunk + i32(lane));
        for (var g = 0u; g < G; g++) { found[g] = max(found[g], logits.s[g]); }
    }
    for (var g = 0u; g < G; g++) { weights[lane * G + g] = found[g]; }
    workgroupBarrier();
    if (lane < G) {
        var largest: vec4<f32>;
        for (var j = 0u; j < 4u; j++) { largest[j] = sink_of(tile, kv_head, lane * 4u + j); }
        for (var other = 0u; other < LANES; other++) { largest = max(largest, weights[other * G + lane]); }
        maxima[lane] = largest;
    }
    workgroupBarrier();
}

fn is_nothing(maximum: f32) -> bool { return bitcast<u32>(maximum) == 0xff800000u; }

fn exp4(x: vec4<f32>) -> vec4<f32> { return vec4(exp_exact(x.x), exp_exact(x.y), exp_exact(x.z), exp_exact(x.w)); }

// p and P of the lane's position, for all lanes to read.
fn note_weights(tile: Tile, kv_head: u32, lane: u32, position: i32) {
    let logits = logits_at(tile, kv_head, position);
    for (var g = 0u; g < G; g++) {
        let is_none = bitcast<vec4<u32>>(logits.s[g]) == vec4(0xff800000u);
        let p = select(exp4(sub4(logits.s[g], maxima[g])), vec4<f32>(), is_none);
        weights[lane * G + g] = vec4(weight_of(p.x), weight_of(p.y), weight_of(p.z), weight_of(p.w));
        for (var j = 0u; j < 4u; j++) { probabilities[lane * PAIRS + g * 4u + j] = p[j]; }
    }
    let slot = V_FIRST + (u32(position) % PAGE_SIZE) * V_SLOT + kv_head * V_HEAD;
    cells[lane] = select(v_row(logits.page) + slot, NO_PAGE, logits.page == NO_PAGE);
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
    find_maxima(tile, kv_head, lane, first, last);

    var totals: array<vec4<f32>, SUMS>;
    var cut: array<vec4<f32>, SUMS>;
    var total = 0.0;  // of p, of the pair `lane`
    var cut_total = 0.0;
    for (var chunk = first; chunk <= last; chunk += i32(LANES)) {
        note_weights(tile, kv_head, lane, chunk + i32(lane));
        workgroupBarrier();
        for (var start = 0u; start < LANES; start += 16u) {
            var run = array<vec4<f32>, SUMS>();
            var run_total = 0.0;
            for (var i = start; i < start + 16u; i++) {
                run_total = add(run_total, probabilities[i * PAIRS + min(lane, PAIRS - 1u)]);
                for (var word = 0u; word < WORDS_PER_LANE; word++) {
                    let values = values_at(cells[i], lane + word * LANES);
                    for (var c = 0u; c < COLUMNS; c++) {
                        for (var g = 0u; g < G; g++) {
                            let at = (word * COLUMNS + c) * G + g;
                            run[at] = add4(run[at], term(weights[i * G + g], values.columns[c], values));
                        }
                    }
                }
            }
            cut_total = add(cut_total, run_total);
            for (var i = 0u; i < SUMS; i++) { cut[i] = add4(cut[i], run[i]); }
        }
        if ((u32(chunk) + LANES) % 256u == 0u) {
            total = add(total, cut_total);
            cut_total = 0.0;
            for (var i = 0u; i < SUMS; i++) {
                totals[i] = add4(totals[i], cut[i]);
                cut[i] = vec4<f32>();
            }
        }
        workgroupBarrier();
    }
    total = add(total, cut_total);

    if (lane < PAIRS) {
        let maximum = maxima[lane / 4u][lane % 4u];
        if (HAS_SINKS && !is_nothing(maximum)) { total = add(total, exp_exact(sub(sink_of(tile, kv_head, lane), maximum))); }
        let is_empty = (bitcast<u32>(total) & 0x7fffffffu) == 0u;
        factors[lane] = select(recip(select(total, 1.0, is_empty)), 0.0, is_empty);
        if (HAS_LSE && lane < tile.num_pairs) {
            let row = tile.first_row + (tile.first_pair + lane) / GROUP;
            let found = settle(add(mul(maximum, 1.44269504), log2_exact(select(total, 1.0, is_empty))));
            store_lse(row, head_of(tile, kv_head, lane), select(found, minus_inf(), is_empty));
        }
    }
    workgroupBarrier();
    for (var word = 0u; word < WORDS_PER_LANE; word++) {
        for (var c = 0u; c < COLUMNS; c++) {
            let column = column_of(lane + word * LANES, c);
            if (lane + word * LANES >= V_WORDS || column >= DV) { continue; }
            for (var pair = 0u; pair < tile.num_pairs; pair++) {
                let at = (word * COLUMNS + c) * G + pair / 4u;
                let sum = add4(totals[at], cut[at])[pair % 4u];
                let row = tile.first_row + (tile.first_pair + pair) / GROUP;
                out[out_row(row) + head_of(tile, kv_head, pair) * DV + column] = settle(mul(sum, factors[pair]));
            }
        }
    }
}
