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
    //: each g < 8
    var v_$g: vec4<f32>;
    //: each e < 4
    v_$g[$e] = settle(mul(silu(x_at(gate + 4u * $gu + $eu)), x_at(up + 4u * $gu + $eu)));
    //: end
    amax = max(amax, magnitude_of_four(v_$g));
    //: end
    if (amax > LARGEST_AMAX) { refuse(BAD_X); }
    let factor = code_factor(amax);
    let into = y_codes_row(token) + block * 8u;
    //: each g < 8
    y_codes[into + $gu] = four_codes(v_$g, factor);
    //: end
    y_scales[y_scales_row(token) + block] = block_scale(amax);
}
