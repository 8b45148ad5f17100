// Rows in rank order: from the largest value to the smallest, lowest index first among equals, -0 equal to +0.
#pragma once
#include "../simd/half.h"
#include "elementary.h"
#include "rows.h"

namespace samebits::SAMEBITS_ISA {

// A key that ascends along the ranking, and the value back from it (+0 for both zeros).
INLINE uint32_t rank_key(float x) {
    const uint32_t u = float_to_bits(x + 0.0f);  // -0 + 0 is +0
    return u >> 31 ? u : u ^ 0x7FFFFFFF;
}
INLINE float ranked_value(uint32_t key) { return bits_to_float(key >> 31 ? key : key ^ 0x7FFFFFFF); }

// The front part of a ranking: values above `value`, and of those equal to it the first `num_equal`.
struct Cut {
    float value;
    int64_t num_equal;
};
constexpr Cut kWholeRow{-kInfinity, INT64_MAX};

constexpr int kLevelBits[] = {11, 11, 10};
constexpr int kNumBuckets = 1 << 11;
constexpr size_t kBucketBytes = kNumBuckets * sizeof(int64_t);

// The elements whose forerunners weigh less than `limit` in all: weights of buckets of keys, then of buckets inside
// the one where the limit falls. Weights are integers, so their sums have no order and need no sort.
template <class Weight>
inline Cut find_cut(const float* x, int64_t n, const Weight& weight, int64_t limit, int64_t* buckets) {
    uint64_t prefix = 0;
    int64_t before = 0;
    int shift = 32;
    for (int num_bits : kLevelBits) {
        const int above = shift, num_buckets = 1 << num_bits;
        shift -= num_bits;
        memset(buckets, 0, size_t(num_buckets) * sizeof(int64_t));
        for (int64_t i = 0; i < n; i++) {
            const uint64_t key = rank_key(x[i]);
            if (key >> above == prefix) buckets[key >> shift & uint64_t(num_buckets - 1)] += weight(i);
        }
        int b = 0;
        while (b < num_buckets && before + buckets[b] < limit) before += buckets[b++];
        if (b == num_buckets) return kWholeRow;
        prefix = prefix << num_bits | uint64_t(b);
    }
    Cut cut{ranked_value(uint32_t(prefix)), 0};
    for (int64_t i = 0; i < n && before < limit; i++)
        if (x[i] == cut.value) {
            cut.num_equal++;
            before += weight(i);
        }
    return cut;
}

// Whether an element is in the front part; asked once for each element, in the order of their indices.
struct FrontTest {
    Cut rest;
    INLINE bool operator()(float x) { return x > rest.value || (x == rest.value && rest.num_equal-- > 0); }
};

// y = x in the front part, -inf behind it.
INLINE void keep_front(const Cut& cut, const float* x, float* y, int64_t n) {
    FrontTest in_front{cut};
    for (int64_t i = 0; i < n; i++) y[i] = in_front(x[i]) ? x[i] : -kInfinity;
}

struct OneEach {
    INLINE int64_t operator()(int64_t) const { return 1; }
};

INLINE void sift_down(uint64_t* heap, int64_t at, int64_t size) {
    const uint64_t moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= moved) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

// Ascending, in place: a heap sort.
inline void sort_keys(uint64_t* keys, int64_t n) {
    for (int64_t i = n / 2 - 1; i >= 0; i--) sift_down(keys, i, n);
    for (int64_t last = n - 1; last > 0; last--) {
        const uint64_t largest = keys[0];
        keys[0] = keys[last];
        keys[last] = largest;
        sift_down(keys, 0, last);
    }
}

// The largest value of a row; whether no element is NaN.
INLINE bool find_largest(const float* x, int64_t n, float& largest) {
    F top = set(-kInfinity);
    M fine = first_lanes(16);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const F v = load(x + i);
        fine = fine & (v == v);
        top = max(v, top);
    }
    const F v = select(first_lanes(int(n - i)), load_partial(x + i, int(n - i)), set(-kInfinity));
    fine = fine & (v == v);
    largest = reduce_max(max(v, top));
    return all(fine);
}

// The first place of a value in a row, 0 if it has none.
INLINE int32_t find_value(const float* x, int64_t n, float value) {
    int64_t i = 0;
    while (i + 16 <= n && !any(load(x + i) == set(value))) i += 16;
    while (i < n && x[i] != value) i++;
    return i < n ? int32_t(i) : 0;
}

}  // namespace samebits::SAMEBITS_ISA
