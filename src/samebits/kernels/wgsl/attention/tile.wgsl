//: needs elementary, rounding4, attention/pairs, attention/positions, attention/octets, attention/finish, finished
// A workgroup takes a tile of pairs over all positions they see, LANES at a time. First the exact maximum; then, scores
// made once more, exponentials (a lane is a position) and their products with values (a lane is eight columns).
const OCTETS = (DV_STORED + 7u) / 8u;  // at most LANES

var<workgroup> weights: array<vec4<f32>, LANES * G>;  // P by position, rounded for values; maxima before
var<workgroup> probabilities: array<vec4<f32>, LANES * G>;  // p
var<workgroup> cells: array<u32, LANES>;  // where values lie; NO_PAGE where no pair looks

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

fn attend(tile: Tile, kv_head: u32, lane: u32) {
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
        note_factors(tile, kv_head, lane, add4(total, cut_total));
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
    if (loops_were_ended()) { refuse(TOO_LONG); }
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let kv_head = group.y;
    let tile = tile_of(group.z * groups.x + group.x);
    if (tile.num_pairs == 0u || (SKIPS_SINGLE && tile.num_rows == 1)) { return; }
    attend(tile, kv_head, lane);
}
