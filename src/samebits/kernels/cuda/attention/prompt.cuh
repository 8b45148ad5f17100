// What the warps of a block of prompts.cu share, and what it is launched with.
//
// Operands lie in shared memory as float32, so that a multiply-add needs no conversion beside it. Elements of queries and keys
// lie in quarters of a head, each of which lanes of its own multiply; the gaps between quarters keep lanes off each other's
// banks.
#pragma once

static constexpr int BN = 64;  // positions of a block
#include "boxes.cuh"
#include "numbers.cuh"
#include "tiles.cuh"
#include "warpgroup.cuh"

static constexpr int RUN = 16, CUT = 256;
static constexpr int WARPS = 8, THREADS = 32 * WARPS;  // that compute
static constexpr int QUARTER = D / 4, QUERY_BYTES = BM * 4, KEY_BYTES = BN * 4, VALUE_BYTES = D * 4;
static constexpr int QUERY_QUARTER = QUARTER * QUERY_BYTES + 32, KEY_QUARTER = QUARTER * KEY_BYTES + 64;
static constexpr int NARROW_BYTES = BN * D * 2, WIDE_BYTES = 4 * KEY_QUARTER, SCORE_BYTES = BM * BN * 4;

// Places in shared memory. Blocks of keys and values as they come lie first, where copies' pattern of 1024 bytes begins. Where
// the queries are while scores are computed, there are the sums of whole cuts when values are added.
static constexpr int NARROW = 0;
static constexpr int WIDE = NARROW + 2 * NARROW_BYTES;
static constexpr int SCORES = WIDE + 2 * WIDE_BYTES;
static constexpr int QUERIES = SCORES + 2 * SCORE_BYTES, CUTS = QUERIES;

struct Pointers {
    const void* q;
    const float* sinks;
    void* out;
    float *scores, *sums;  // of a block: [room][BM]; sums of cuts, where positions are more than that
    int *fault, *counters;
};

struct Numbers {
    int q_token, q_head, window, room;  // room: a multiple of a cut
    float scale;
};

struct Shared {
    float of_row[BM];  // maxima of scores; then what sums are multiplied by
    u64 narrow_full[2], narrow_empty[2], scores_full[2], scores_empty[2], stored, number_full[2], number_empty[2];
    int numbers[2];
};

// Blocks of positions whose scores are kept at a time, [first, end), of those that a tile sees.
struct Segment {
    int first, end;

    __device__ __forceinline__ Segment(const Seen& seen, int room) : first(seen.first), end(up_to(seen, room)) {}
    __device__ __forceinline__ int up_to(const Seen& seen, int room) const {
        return min(seen.end, first / (CUT / BN) * (CUT / BN) + room / BN);
    }
    // Whether there is one more, which this becomes.
    __device__ __forceinline__ bool next(const Seen& seen, int room) {
        if (end == seen.end) return false;
        first = end, end = up_to(seen, room);
        return true;
    }
    // The first segment's scores are all of the tile's: the maximum must be known before the first weight.
    __device__ __forceinline__ int scored_end(const Seen& seen) const { return first == seen.first ? seen.end : end; }
};

// The maximum; no number where either is none.
__device__ __forceinline__ float larger(float a, float b) {
    float x;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
}

__device__ __forceinline__ float4 load_four(u32 from) {
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "r"(from));
    return x;
}
__device__ __forceinline__ void store_four(u32 to, float a, float b, float c, float d) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

// Stores to shared memory come before copies to or from where they stored.
__device__ __forceinline__ void fence_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Of a block's scores [position][row]: where a row's lies. Positions that lanes have at once, odd ones and those of the later
// half of a block, swap halves of 128 bytes, so that they lie on other banks.
__device__ __forceinline__ u32 score_at(u32 scores, int position, int row) {
    return scores + position * QUERY_BYTES + (row * 4 ^ (position ^ position / 32) % 2 * 64);
}
