//: needs int8_block, activation_record
// Floats in int8 blocks, as products read them.
@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * GROUP + lane;
    let token = i / P.blocks;
    let block = i % P.blocks;
    if (token >= P.num_tokens) { return; }
    let from_x = x_row(P.first_token + token) + block * 32u;
    var amax = 0u;
    //: each g < 8
    let at_$g = from_x + 4u * $gu;
    let v_$g = vec4<f32>(x_at(at_$g), x_at(at_$g + 1u), x_at(at_$g + 2u), x_at(at_$g + 3u));
    amax = max(amax, magnitude_of_four(v_$g));
    //: end
    if (amax > LARGEST_AMAX) { refuse(BAD_X); }
    let f = code_factor(amax);
    let low = vec4(four_codes(v_0, f), four_codes(v_1, f), four_codes(v_2, f), four_codes(v_3, f));
    let high = vec4(four_codes(v_4, f), four_codes(v_5, f), four_codes(v_6, f), four_codes(v_7, f));
    note(token, block, low, high, block_scale(amax));
}
