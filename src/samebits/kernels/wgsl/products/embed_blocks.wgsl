//: needs texels, chunk_of_ids
// An invocation unpacks a block of 32 of a token's row, where the row is in this chunk.
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
    let id = ids_at(ids_row(token));
    let into = y_row(token) + block * 32u;
    if (!is_of_chunk(id)) {
        if (is_to_clear(id)) {
            for (var e = 0u; e < min(32u, K - block * 32u); e++) { y[into + e] = 0.0; }
        }
        return;
    }
    let at = u32(id) - P.first_row;
    let column = block / STRETCH * STRETCH_TEXELS;
    var head = load_head(column, at % 16u, at / 16u);
    for (var n = 0u; n < block % STRETCH; n++) { head = next_block(head); }
    let scales = scales_of(head);
    let codes = load_codes(head, column, block % STRETCH, at % 16u, at / 16u);
    for (var e = 0u; e < min(32u, K - block * 32u); e++) {
        let part = select(codes.low, codes.high, e >= 16u);
        let word = part[(e / 4u) % 4u];
        let code = extractBits(bitcast<i32>(word), (e % 4u) * 8u, 8u);
        y[into + e] = settle(element(code, e / 16u, scales));
    }
}
