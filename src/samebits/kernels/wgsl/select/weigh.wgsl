//: needs bucket_sums, buckets, weights
// A workgroup takes a part of a row: the weight of each bucket of values.
@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.z * groups.y + group.y;
    if (row >= P.num_rows) { return; }
    if (!is_wanted(row, IS_MASS)) { return; }
    let of_row = row_of(row);
    let buckets = buckets_of(row);
    let start = row_start(row);
    let end = min((group.x + 1u) * PART, P.length);
    clear_buckets(lane);
    workgroupBarrier();
    for (var c = group.x * PART + lane; c < end; c += GROUP) {
        let x = scaled_at(start + c, of_row.factor);
        add_to_bucket(bucket_of(x, buckets), weight_of(x, c, of_row));
    }
    workgroupBarrier();
    let at = (row * P.num_parts + group.x) * 256u;
    for (var b = lane; b < 256u; b += GROUP) {
        let sum = bucket_sum(b);
        sums[2u * (at + b)] = sum.x;
        sums[2u * (at + b) + 1u] = sum.y;
    }
}
