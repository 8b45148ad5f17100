//: needs attention/cuts, attention/positions
// Logits of a cut and their maxima: a lane takes eight positions, so that it reads the queries once for them.
var<workgroup> of_lanes: array<vec4<f32>, 32>;

fn score(tile: Tile, kv_head: u32, cut: Cut, lane: u32) {
    if (lane == 0u) { note_pairs(tile, kv_head, 0u); }
    note_queries(tile, kv_head, lane);
    workgroupBarrier();
    let unit = kv_head * P.num_cuts + cut.number;
    let own_first = cut.first + i32(lane * 8u);
    var found = same_for_quads(minus_inf());
    if (own_first <= cut.last) {
        take_queries();
        for (var j = 0; j < 8; j++) {
            var page: u32;
            let s = logits_at(tile, kv_head, own_first + j, &page);
            logits[unit * 256u + lane * 8u + u32(j)] = bitcast<vec4<u32>>(s.a);
            found = max_quads(found, s);
        }
    }
    of_lanes[lane] = found.a;
    workgroupBarrier();
    if (lane == 0u) {
        var largest = found.a;
        let end = u32(cut.last - cut.first) / 8u;
        for (var other = 1u; other <= end; other++) { largest = max(largest, of_lanes[other]); }
        cut_maxima[unit] = bitcast<vec4<u32>>(largest);
    }
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    nothing = lane & P.zero;
    let kv_head = group.y;
    let tile = tile_in(sequence_of_cut(group.x), 0u);
    let cut = cut_of(tile, group.x);
    // no early return: some compilers run what follows with all lanes off
    if (cut.last >= cut.first) { score(tile, kv_head, cut, lane); }
}
