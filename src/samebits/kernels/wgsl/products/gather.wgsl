//: needs chunk_of_ids
// An invocation copies one element of a token's row.
@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * GROUP + lane;
    let token = i / K;
    let column = i % K;
    if (token >= P.num_tokens) { return; }
    let id = ids_at(ids_row(token));
    var value = 0.0;
    if (!is_to_clear(id)) { value = table_at(table_row(u32(id)) + column); }
    y[y_row(token) + column] = settle(value);
}
