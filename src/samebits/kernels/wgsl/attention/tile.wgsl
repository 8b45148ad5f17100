//: needs elementary, rounding4, attention/pairs, attention/positions, attention/octets, attention/finish, finished
// A workgroup takes a tile of pairs over all positions they see, LANES at a time. First the exact maximum; then, scores
// made once more, exponentials (a lane is a position) and their products with values (a lane is eight columns).
const OCTETS = (DV_STORED + 7u) / 8u;  // at most LANES

var<workgroup> weights: array<vec4<f32>, LANES * G>;  // P by position, rounded for values; maxima before
var<workgroup> probabilities: array<vec4<f32>, LANES * G>;  // p
var<workgroup> cells: array<u32, LANES>;  // where values lie; NO_PAGE where no pair looks

// The pairs' maxima from those of all lanes, and their sinks: lane g < G has four pairs.
fn note_maxima(tile: Tile, kv_head: u32, g: u32) {
    var largest = sinks_of(tile, kv_head, g);
    for (var other = 0u; other < opaque(LANES); other++) { largest = max(largest, weights[other * G + g]); }
    maxima[g] = largest;
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

    var largest = same_for_quads(minus_inf());
    for (var chunk = first; chunk <= last; chunk += i32(LANES)) {
        var page: u32;
        largest = max_quads(largest, logits_at(tile, kv_head, chunk + i32(lane), &page));
    }
    store_weights(lane, largest);
    workgroupBarrier();
    if (lane < G) { note_maxima(tile, kv_head, lane); }
    workgroupBarrier();

    var sums = no_sums();
    var cut = no_sums();
    var total = vec4<f32>();  // of p, of four pairs: lanes below G
    var cut_total = vec4<f32>();
    for (var chunk = first; chunk <= last; chunk += i32(LANES)) {
        note_weights(tile, kv_head, lane, chunk + i32(lane));
        workgroupBarrier();
        if (lane < G) {
            for (var start = 0u; start < opaque(LANES); start += 16u) {
                var run = vec4<f32>();
                for (var i = start; i < start + 16u; i++) { run = add4(run, probabilities[i * G + lane]); }
                cut_total = add4(cut_total, run);
            }
        }
        if (lane < OCTETS) {
            for (var start = 0u; start < opaque(LANES); start += 16u) {
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
        var columns = array<Quads, 8>(found.a, found.b, found.c, found.d, found.e, found.f, found.g, found.h);
        for (var c = 0u; c < opaque(8u); c++) { store_column(tile, kv_head, column_of(lane, c), columns[c]); }
    }
    if (loops_were_ended()) { refuse(TOO_LONG); }
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    nothing = lane & P.zero;
    let kv_head = group.y;
    let tile = tile_of(group.z * groups.x + group.x);
    if (tile.num_pairs == 0u || (SKIPS_SINGLE && tile.num_rows == 1)) { return; }
    attend(tile, kv_head, lane);
}
