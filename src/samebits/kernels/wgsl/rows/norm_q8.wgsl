//: needs elementary, row_sum, add_to_residual, int8_block
// The norm's sum as in norm.wgsl; then an invocation takes whole blocks of what is in the residual.
fn put_block(row: u32, block: u32, factor: f32) {
    let inner = (row % INNER) * K + block * 32u;
    let from_residual = residual_row(row / INNER) + inner;
    let from_weight = weight_row(0u) + block * 32u;
    var v: array<vec4<f32>, 8>;
    var amax = 0u;
    for (var j = 0u; j < 8u; j++) {
        let normalized = settle4(mul4(residual_four(from_residual + j * 4u, 4u), vec4(factor)));
        v[j] = settle4(mul4(normalized, weight_four(from_weight + j * 4u, 4u)));
        amax = max(amax, magnitude_of_four(v[j]));
    }
    if (amax > LARGEST_AMAX) { refuse(NOT_FINITE); }
    let to_code = code_factor(amax);
    let into_codes = codes_row(row / INNER) + inner / 4u;
    for (var j = 0u; j < 8u; j++) { codes[into_codes + j] = four_codes(v[j], to_code); }
    scales[scales_row(row / INNER) + inner / 32u] = block_scale(amax);
}

@compute @workgroup_size(LANES * ROWS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_group(group, groups) * ROWS + lane / LANES;
    let width = select(0u, K, row < P.num_rows);
    let first = ((lane % LANES) / 4u) * 256u + (lane % 4u) * 4u;
    for (var cut = 0u; cut < CUTS; cut += CUTS_AT_ONCE) {
        var slots = vec4(0.0);
        let start = cut * 256u + first;
        for (var c = start; c < min(start + 256u, width); c += 16u) {
            let v = added(row, c);
            slots = add4(slots, mul4(v, v));
        }
        keep_cuts(lane, cut, slots);
    }
    storageBarrier();
    let factor = rsqrt(add(mul(settle(row_total(lane)), P.inv_k), P.eps));
    for (var block = lane % LANES; block * 32u < width; block += LANES) { put_block(row, block, factor); }
}
