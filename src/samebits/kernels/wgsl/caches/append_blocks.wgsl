//: needs appending, float16
// An invocation stores a block of 32 of a cache whose format a snippet encodes: kv_q8_0 or kv_q4_0.
const BLOCKS = (D + 31u) / 32u;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * 64u + lane;
    if (i >= P.count) { return; }
    let row = i / BLOCKS;
    let token = row / HEADS;
    let head = row % HEADS;
    let cell = cell_of(token);
    if (cell == NO_PAGE) { return; }
    let angles = angles_of(token);
    let start = x_row(token) + head * D;
    let nth = i % BLOCKS;
    var values: array<f32, 32>;
    for (var e = 0u; e < 32u; e++) { values[e] = turned(start, nth * 32u + e, angles); }
    let extreme = extreme_of(&values);
    if (!in_range(extreme)) { refuse(NOT_STORABLE); }
    let scale = stored_scale(extreme);
    if ((scale & 0x7fffu) > 0x7bffu) { refuse(NOT_STORABLE); }
    let into = cell + head * CACHE_HEAD + nth;
    cache[P.cache_scales + into] = bitcast<u32>(widen_f16(scale));
    let factor = code_factor(extreme);
    for (var word = 0u; word < CODE_WORDS; word++) {
        cache[into * CODE_WORDS + word] = code_word(&values, word, factor);
    }
}
