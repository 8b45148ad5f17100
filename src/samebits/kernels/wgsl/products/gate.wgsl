//: needs int8_block, sigmoid
// quantize_q8(silu(gate) * up): an invocation makes a block of 32 of a row that holds gates, then as many ups.
@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * GROUP + lane;
    let token = i / BLOCKS;
    let block = i % BLOCKS;
    if (token >= P.num_tokens) { return; }
    let gate = x_row(token) + block * 32u;
    let up = gate + BLOCKS * 32u;
    var amax = 0u;
    var values: array<vec4<f32>, 8>;  // in a loop: written out, 32 sigmoids take a compiler seconds
    for (var g = 0u; g < 8u; g++) {
        var four: vec4<f32>;
        for (var e = 0u; e < 4u; e++) {
            let at = 4u * g + e;
            four[e] = settle(mul(silu(x_at(gate + at)), x_at(up + at)));
        }
        amax = max(amax, magnitude_of_four(four));
        values[g] = four;
    }
    if (amax > LARGEST_AMAX) { refuse(BAD_X); }
    let factor = code_factor(amax);
    let into = y_codes_row(token) + block * 8u;
    for (var g = 0u; g < 8u; g++) { y_codes[into + g] = four_codes(values[g], factor); }
    y_scales[y_scales_row(token) + block] = block_scale(amax);
}
