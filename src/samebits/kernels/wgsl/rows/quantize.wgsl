//: needs int8_block
// An invocation takes a block of 32.
@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * GROUP + lane;
    if (i >= P.count) { return; }
    let row = i / NB;
    let block = i % NB;
    let outer = row / INNER;
    let inner = row % INNER;
    let from_x = x_row(outer) + (inner * NB + block) * 32u;
    var v: array<vec4<f32>, 8>;
    var amax = 0u;
    for (var j = 0u; j < 8u; j++) {
        v[j] = x_four(from_x + j * 4u, 4u);
        amax = max(amax, magnitude_of_four(v[j]));
    }
    if (amax > LARGEST_AMAX) { refuse(NOT_FINITE); }
    let factor = code_factor(amax);
    let into_codes = codes_row(outer) + (inner * NB + block) * 8u;
    for (var j = 0u; j < 8u; j++) { codes[into_codes + j] = four_codes(v[j], factor); }
    scales[scales_row(outer) + inner * NB + block] = block_scale(amax);
}
