//: needs wide
// Sums of 64 bits for each of 256 buckets, by all invocations of a workgroup.
var<workgroup> bucket_low: array<atomic<u32>, 256>;
var<workgroup> bucket_high: array<atomic<u32>, 256>;

fn clear_buckets(lane: u32) {
    for (var b = lane; b < 256u; b += GROUP) {
        atomicStore(&bucket_low[b], 0u);
        atomicStore(&bucket_high[b], 0u);
    }
}

fn add_to_bucket(b: u32, weight: u32) {
    let before = atomicAdd(&bucket_low[b], weight);
    if (before + weight < before) { atomicAdd(&bucket_high[b], 1u); }
}

fn bucket_sum(b: u32) -> vec2<u32> { return vec2(atomicLoad(&bucket_low[b]), atomicLoad(&bucket_high[b])); }

struct Found {
    bucket: u32,
    need: vec2<u32>,  // what is missing before that bucket
}

// The first bucket with which the sum reaches `need`; there must be one.
fn find_bucket(need: vec2<u32>) -> Found {
    var rest = need;
    for (var b = 0u; b < 255u; b++) {
        let sum = bucket_sum(b);
        if (!wide_less(sum, rest)) { return Found(b, rest); }
        rest = wide_sub(rest, sum);
    }
    return Found(255u, rest);
}
