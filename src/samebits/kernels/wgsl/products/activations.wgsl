//: needs activation_record
// Codes and scales side by side, as products read them; what quantize_q8 does not make is refused here.
fn lowest(words: vec4<u32>) -> u32 {  // not 0 where a code is -128: a byte of 0 borrows
    let flipped = words ^ vec4(0x80808080u);
    let found = (flipped - vec4(0x01010101u)) & ~flipped & vec4(0x80808080u);
    return (found.x | found.y) | (found.z | found.w);
}

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
    let at = codes_row(P.first_token + token) + block * 8u;
    let low = vec4(codes[at], codes[at + 1u], codes[at + 2u], codes[at + 3u]);
    let high = vec4(codes[at + 4u], codes[at + 5u], codes[at + 6u], codes[at + 7u]);
    let scale = scales_at(scales_row(P.first_token + token) + block);
    if ((lowest(low) | lowest(high)) != 0u) { refuse(BAD_CODES); }
    if (!is_finite(scale)) { refuse(BAD_SCALES); }
    note(token, block, low, high, scale);
}
