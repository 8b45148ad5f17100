//: needs texels, chunk_of_ids
// An invocation takes four elements of a token's row, where the row is in this chunk.
@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * GROUP + lane;
    let token = i / FOURS;
    let four = i % FOURS;
    if (token >= P.num_tokens) { return; }
    let id = ids_at(ids_row(token));
    if (!is_of_chunk(id) && !is_to_clear(id)) { return; }
    var values: vec4<f32>;
    if (is_of_chunk(id)) {
        let at = u32(id) - P.first_row;
        values = four_elements(four, at % 16u, at / 16u);
    }
    let into = y_row(token) + four * 4u;
    for (var e = 0u; e < min(4u, K - four * 4u); e++) { y[into + e] = settle(values[e]); }
}
