//: needs bucket_sums, buckets
// A workgroup takes a row: the bucket that holds the last place kept.

// The lowest key whose value is in a bucket or one before it.
fn lowest_key(bucket: u32, buckets: Buckets) -> u32 {
    var key = 0u;
    for (var bit = 0x80000000u; bit > 0u; bit >>= 1u) {
        if (bucket_of(value_of(key + bit - 1u), buckets) > bucket) { key += bit; }
    }
    return key;
}

@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.z * groups.y + group.y;
    if (row >= P.num_rows) { return; }
    clear_buckets(lane);
    for (var b = lane; b < 256u; b += GROUP) {
        var total = vec2<u32>(0u, 0u);
        if (is_wanted(row, IS_MASS)) {
            for (var part = 0u; part < P.num_parts; part++) {
                let at = 2u * ((row * P.num_parts + part) * 256u + b);
                total = wide_add(total, vec2(sums[at], sums[at + 1u]));
            }
        }
        atomicStore(&bucket_low[b], total.x);
        atomicStore(&bucket_high[b], total.y);
    }
    workgroupBarrier();
    if (lane != 0u) { return; }
    var low = 1u;
    var high = 0u;
    if (is_wanted(row, IS_MASS)) {
        var need = vec2(state_word(row, NUM_KEPT), 0u);
        if (IS_MASS) {
            var total = vec2<u32>(0u, 0u);
            for (var b = 0u; b < 256u; b++) { total = wide_add(total, bucket_sum(b)); }
            need = wide_share(total, state_word(row, SHARE));
        }
        let found = find_bucket(need);
        low = lowest_key(found.bucket, buckets_of(row));
        high = 0xffffffffu;
        if (found.bucket > 0u) { high = lowest_key(found.bucket - 1u, buckets_of(row)) - 1u; }
        state[row * STATE_WORDS + NEED] = found.need.x;
        state[row * STATE_WORDS + NEED + 1u] = found.need.y;
    }
    state[row * STATE_WORDS + LOW_KEY] = low;
    state[row * STATE_WORDS + HIGH_KEY] = high;
}
