// Scores of a block of positions: chains of 8 products, joined over the runs of a head.
#pragma once
#include "prompt.cuh"

static constexpr int ROWS_OF_THREAD = 8, KEYS = 4, PRODUCTS = ROWS_OF_THREAD * KEYS;  // of a thread, in a quarter of a head
static constexpr int ROWS_OF_LANE = 2;                                                 // of those that it ends with
static constexpr int PARTS = BN / 16;                                                  // of a block, in keys of a warp

// A thread's place in a block of scores. Lanes of a quarter have 2 x 4 places of 8 rows and 4 keys.
struct ScorePlace {
    u32 quarter, y, x, row;  // row: the first of the two that it ends with

    __device__ __forceinline__ ScorePlace(u32 warp, u32 lane) : quarter(lane / 8), y(lane / 4 % 2), x(lane % 4) {
        row = warp * 16 + y * 8 + quarter % 2 * 4 + quarter / 2 * 2;
    }
    // Of the number of a part and a lane's key: the position in the block.
    __device__ __forceinline__ int position(int part, int key) const { return part * 4 + x + key * 16; }
};

// Where a row's elements of a quarter lie. Rows of a lane are swapped by the quarter's number: so a lane keeps the lower half
// of its places and hands on the upper one when quarters are joined, without a choice.
__device__ __forceinline__ u32 query_at(int row, int quarter) {
    const int place = row % 8 ^ quarter % 2 * 4 ^ quarter / 2 * 2;
    return quarter * QUERY_QUARTER + row / 16 * 64 + place / 4 * 32 + row / 8 % 2 * 16 + place % 4 * 4;
}

// The queries of a tile to shared memory; rows beyond the last one are zeros.
__device__ __forceinline__ void load_queries(const Tile& tile, const Pointers& at, const Numbers& with, u32 queries) {
    const int in_tile = threadIdx.x % BM, row = tile.tile * BM + in_tile;
    const bool is_row = row < tile.sequence.count * GROUP;
    const u64 token = tile.sequence.first + row / GROUP, query_head = tile.head * GROUP + row % GROUP;
    const u64 start = token * with.q_token + query_head * with.q_head;
    bool is_good = true;
#pragma unroll
    for (int i = 0; i < D / 2; i += 8) {
        const int element = threadIdx.x / BM * (D / 2) + i, quarter = element / QUARTER;
        float x[8] = {};
        if (is_row) {
            if constexpr (WIDE_Q) {
                const float4* const from = (const float4*)((const float*)at.q + start + element);
                const float4 low = from[0], high = from[1];
                x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
                x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
            } else {
                const uint4 pairs = *(const uint4*)((const u16*)at.q + start + element);
                widen(pairs.x, x[0], x[1]), widen(pairs.y, x[2], x[3]);
                widen(pairs.z, x[4], x[5]), widen(pairs.w, x[6], x[7]);
            }
        }
        const u32 to = queries + query_at(in_tile, quarter) + element % QUARTER * QUERY_BYTES;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float q = WIDE_Q ? operand(x[j]) : x[j];
            const bool is_fine = fabsf(q) <= LARGEST_OPERAND;
            is_good &= is_fine;
            // A zero where it is refused, so that no key or value is blamed for it.
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + j * QUERY_BYTES), "f"(is_fine ? q : 0.0f) : "memory");
        }
    }
    if (!is_good) *at.fault = BAD_QUERY;
}

// The chains of a run of 8 elements.
__device__ __forceinline__ void chain_run(u32 queries, u32 keys, int run, float (&c)[PRODUCTS]) {
#pragma unroll
    for (int d = run * 8; d < run * 8 + 8; d++) {
        const float4 q0 = load_four(queries + d * QUERY_BYTES), q1 = load_four(queries + d * QUERY_BYTES + 32);
        const float4 k0 = load_four(keys + d * KEY_BYTES);
        const float q[8] = {q0.x, q0.y, q0.z, q0.w, q1.x, q1.y, q1.z, q1.w}, k[4] = {k0.x, k0.y, k0.z, k0.w};
#pragma unroll
        for (int i = 0; i < ROWS_OF_THREAD; i++)
#pragma unroll
            for (int j = 0; j < KEYS; j++) c[i * KEYS + j] = fmaf(q[i], k[j], d % 8 ? c[i * KEYS + j] : 0.0f);
    }
}

// Runs [First, First + Count) of a quarter, in adjacent pairs.
template <int First, int Count>
__device__ __forceinline__ void join_runs(u32 queries, u32 keys, float (&s)[PRODUCTS]) {
    if constexpr (Count == 1) {
        chain_run(queries, keys, First, s);
    } else {
        float right[PRODUCTS];
        join_runs<First, Count / 2>(queries, keys, s);
        join_runs<First + Count / 2, Count / 2>(queries, keys, right);
#pragma unroll
        for (int i = 0; i < PRODUCTS; i++) s[i] += right[i];
    }
}

// The products of a part of a block's keys with a warp's 16 rows, in head order: [2 rows][4 keys] of a lane come first.
__device__ __forceinline__ void multiply_part(u32 queries, u32 keys, float (&s)[PRODUCTS]) {
    join_runs<0, QUARTER / 8>(queries, keys, s);
#pragma unroll
    for (int i = 0; i < PRODUCTS / 2; i++) s[i] += __shfl_xor_sync(~0u, s[i + PRODUCTS / 2], 8);
#pragma unroll
    for (int i = 0; i < PRODUCTS / 4; i++) s[i] += __shfl_xor_sync(~0u, s[i + PRODUCTS / 4], 16);
}

// Scores of a block to shared memory; most: the maxima of a lane's rows so far.
__device__ __forceinline__ void score_block(u32 queries, u32 keys, u32 scores, const ScorePlace& place, const Tile& tile,
                                            int block, const Numbers& with, float (&most)[ROWS_OF_LANE]) {
    const Sequence& sequence = tile.sequence;
    const u32 own_queries = queries + place.quarter * QUERY_QUARTER + place.row / 16 * 64 + place.y * 16;
    const u32 own_keys = keys + place.quarter * KEY_QUARTER + place.x * 16;
#pragma unroll 1
    for (int part = 0; part < PARTS; part++) {
        float s[PRODUCTS];
        multiply_part(own_queries, own_keys + part * 64, s);
#pragma unroll
        for (int i = 0; i < ROWS_OF_LANE * KEYS; i++) s[i] = (BF16 ? settle(s[i]) : s[i]) * with.scale;
        if (block >= tile.seen.masked) {
#pragma unroll
            for (int i = 0; i < ROWS_OF_LANE * KEYS; i++) {
                const int position = block * BN + place.position(part, i % KEYS);
                const int row = tile.tile * BM + place.row + i / KEYS;
                const int own = sequence.length - sequence.count + row / GROUP;
                bool is_seen = position <= (CAUSAL ? own : sequence.length - 1);
                if (WINDOW) is_seen &= position >= own - with.window;
                s[i] = is_seen ? s[i] : NEG_INF;
            }
        }
#pragma unroll
        for (int k = 0; k < KEYS; k++) {
            asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(score_at(scores, place.position(part, k), place.row)),
                         "f"(s[k]), "f"(s[KEYS + k])
                         : "memory");
#pragma unroll
            for (int r = 0; r < ROWS_OF_LANE; r++) most[r] = larger(most[r], s[r * KEYS + k]);
        }
    }
}
