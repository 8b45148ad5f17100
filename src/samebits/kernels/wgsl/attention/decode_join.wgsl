//: needs attention/cuts, attention/cut_maxima, attention/finish, finished
// Runs and cuts of a sequence's query joined in order: a lane takes columns.
const OCTETS = (DV_STORED + 7u) / 8u;
const ROW = OCTETS * 8u + 1u;

fn joined(tile: Tile, kv_head: u32, column: u32) -> vec4<f32> {
    let seen = seen_cuts(tile);
    var total = vec4<f32>();
    for (var nth = seen.x; nth < seen.y; nth++) {
        let cut = cut_of(tile, first_cut(tile.sequence) + nth);
        let first = (kv_head * P.num_cuts + cut.number) * 16u;
        let end = first + u32(cut.last - cut.first) / 16u;
        var of_cut = vec4<f32>();
        for (var run = first; run <= end; run++) { of_cut = add4(of_cut, bitcast<vec4<f32>>(sums[run * ROW + column])); }
        total = add4(total, of_cut);
    }
    return total;
}

fn join(tile: Tile, kv_head: u32, lane: u32) {
    if (lane == 0u) {
        note_maxima(tile, kv_head);
        note_factors(tile, kv_head, 0u, joined(tile, kv_head, ROW - 1u));
    }
    workgroupBarrier();
    for (var i = lane; i < OCTETS * 8u; i += LANES) {
        store4(tile, kv_head, column_of(i / 8u, i % 8u), 0u, joined(tile, kv_head, i));
    }
    if (loops_were_ended()) { refuse(TOO_LONG); }
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    nothing = lane & P.zero;
    let kv_head = group.y;
    let tile = tile_in(group.x, 0u);
    // no early return: some compilers run what follows with all lanes off
    if (tile.num_rows == 1) { join(tile, kv_head, lane); }
}
