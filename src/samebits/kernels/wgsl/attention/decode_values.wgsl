//: needs attention/cuts, attention/cut_maxima, attention/octets
// Sums of P * v and of p over the runs of a cut: a lane takes sixteen columns of a run.
const OCTETS = (DV_STORED + 7u) / 8u;
const LANES_OF_RUN = (OCTETS + 1u) / 2u;
const ROW = OCTETS * 8u + 1u;  // columns of a run's sums, and p's

var<workgroup> weights: array<vec4<f32>, 256>;  // P
var<workgroup> probabilities: array<vec4<f32>, 256>;  // p

fn cell_at(tile: Tile, kv_head: u32, position: u32, weight: vec4<f32>) -> u32 {
    if (all(weight == vec4<f32>())) { return NO_PAGE; }
    let page = page_of(tile.sequence, position / PAGE_SIZE);
    let slot = V_FIRST + (position % PAGE_SIZE) * V_SLOT + kv_head * V_HEAD;
    return select(v_row(page) + slot, NO_PAGE, page == NO_PAGE);
}

fn store_octet(at: u32, x: Sums) {
    sums[at] = bitcast<vec4<u32>>(x.a.a);
    sums[at + 1u] = bitcast<vec4<u32>>(x.b.a);
    sums[at + 2u] = bitcast<vec4<u32>>(x.c.a);
    sums[at + 3u] = bitcast<vec4<u32>>(x.d.a);
    sums[at + 4u] = bitcast<vec4<u32>>(x.e.a);
    sums[at + 5u] = bitcast<vec4<u32>>(x.f.a);
    sums[at + 6u] = bitcast<vec4<u32>>(x.g.a);
    sums[at + 7u] = bitcast<vec4<u32>>(x.h.a);
}

fn weigh(tile: Tile, kv_head: u32, cut: Cut, lane: u32) {
    let unit = kv_head * P.num_cuts + cut.number;
    if (lane == 0u) { note_maxima(tile, kv_head); }
    workgroupBarrier();
    let count = u32(cut.last - cut.first) + 1u;
    for (var i = lane; i < 256u; i += LANES) {
        var p = vec4<f32>();
        if (i < count) { p = exponential(bitcast<vec4<f32>>(logits[unit * 256u + i]), maxima[0]); }
        probabilities[i] = p;
        weights[i] = weight4(p);
    }
    workgroupBarrier();
    let run = lane / LANES_OF_RUN;
    let octet = lane % LANES_OF_RUN * 2u;
    if (run * 16u < count && run < 16u) {
        var low = no_sums();
        var high = no_sums();
        for (var i = run * 16u; i < run * 16u + 16u; i++) {
            let weight = weights[i];
            let cell = cell_at(tile, kv_head, u32(cut.first) + i, weight);
            low = add_values(low, Quads(weight), octet_at(cell, octet));
            let cell_of_high = select(NO_PAGE, cell, octet + 1u < OCTETS);  // behind a head others' values lie, or none
            high = add_values(high, Quads(weight), octet_at(cell_of_high, octet + 1u));
        }
        let at = (unit * 16u + run) * ROW;
        store_octet(at + octet * 8u, low);
        if (octet + 1u < OCTETS) { store_octet(at + octet * 8u + 8u, high); }
        if (octet == 0u) {
            var sum = vec4<f32>();
            for (var i = run * 16u; i < run * 16u + 16u; i++) { sum = add4(sum, probabilities[i]); }
            sums[at + ROW - 1u] = bitcast<vec4<u32>>(sum);
        }
    }
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    nothing = lane & P.zero;
    let kv_head = group.y;
    let tile = tile_in(sequence_of_cut(group.x), 0u);
    let cut = cut_of(tile, group.x);
    // no early return: some compilers run what follows with all lanes off
    if (cut.last >= cut.first) { weigh(tile, kv_head, cut, lane); }
}
