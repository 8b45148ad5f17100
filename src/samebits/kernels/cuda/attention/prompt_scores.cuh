// Scores of a block of positions: chains of 8 products, joined over the runs of a head.
#pragma once
#include "prompt.cuh"

static constexpr int KEYS_OF_LANE = 8, ROWS_OF_LANE = 2;  // of the scores that a lane ends with

// A thread's place in a block of scores. Lanes of a quarter have 2 x 4 places of 8 rows and 8 keys.
struct ScorePlace {
    u32 quarter, y, x, row;  // row: the first of the two that it ends with

    __device__ __forceinline__ ScorePlace(u32 warp, u32 lane) : quarter(lane / 8), y(lane / 4 % 2), x(lane % 4) {
        row = warp * 16 + y * 8 + quarter % 2 * 4 + quarter / 2 * 2;
    }
    // Of the number of a half and a lane's key: the position in the block.
    __device__ __forceinline__ int position(int half, int key) const { return half * 8 + key / 4 * 4 + x + key % 4 * 16; }
};

// Where a row's elements of a quarter lie. Rows of a lane are swapped by the quarter's number: so a lane keeps the lower half of
// its places and hands on the upper one when quarters are joined, without a choice.
__device__ __forceinline__ u32 query_at(int row, int quarter) {
    const int place = row % 8 ^ quarter % 2 * 4 ^ quarter / 2 * 2;
    return quarter * QUERY_QUARTER + row / 16 * 64 + place / 4 * 32 + row / 8 % 2 * 16 + place % 4 * 4;
}

// The queries of a tile to shared memory; rows beyond the last one are zeros.
__device__ __forceinline__ void load_queries(const Tile& tile, const Pointers& at, const Numbers& with, u32 queries) {
    const int in_tile = threadIdx.x % BM, row = tile.tile * BM + in_tile;
    const bool is_row = row < tile.sequence.count * GROUP;
    const u64 start = (u64)(tile.sequence.first + row / GROUP) * with.q_token + (tile.head * GROUP + row % GROUP) * with.q_head;
    bool is_good = true;
#pragma unroll 2
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

// A block of keys to float32 and to elements by keys. A thread has an element's neighbours of keys 16 apart, which lie side by
// side then: what it loads is on other banks than its neighbours', and so is what it stores.
__device__ __forceinline__ void widen_keys(u32 from, u32 to) {
    constexpr int COUNT = D / 16;  // elements of a thread
    const int key = threadIdx.x % 16, piece = threadIdx.x / 16, element = piece * COUNT;
    float x[4][COUNT];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = key + 16 * i, chunk = element % 64 / 8 ^ row % 8;
        const u32 place = from + element / 64 * (BN * 128) + row * 128 + chunk * 16 + element % 8 * 2;
        if constexpr (COUNT == 8) {
            u32 a, b, c, d;
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(place));
            widen(a, x[i][0], x[i][1]), widen(b, x[i][2], x[i][3]), widen(c, x[i][4], x[i][5]), widen(d, x[i][6], x[i][7]);
        } else {
            u32 a, b;
            asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(place));
            widen(a, x[i][0], x[i][1]), widen(b, x[i][2], x[i][3]);
        }
    }
    const u32 place = to + element / QUARTER * KEY_QUARTER + element % QUARTER * KEY_BYTES + key * 16;
#pragma unroll
    for (int j = 0; j < COUNT; j++) store_four(place + j * KEY_BYTES, x[0][j], x[1][j], x[2][j], x[3][j]);
}

// The chains of a run of 8 elements, of 8 rows and 8 keys.
__device__ __forceinline__ void chain_run(u32 queries, u32 keys, float (&c)[64]) {
#pragma unroll
    for (int d = 0; d < 8; d++) {
        const float4 q0 = load_four(queries + d * QUERY_BYTES), q1 = load_four(queries + d * QUERY_BYTES + 32);
        const float4 k0 = load_four(keys + d * KEY_BYTES), k1 = load_four(keys + d * KEY_BYTES + 64);
        const float q[8] = {q0.x, q0.y, q0.z, q0.w, q1.x, q1.y, q1.z, q1.w};
        const float k[8] = {k0.x, k0.y, k0.z, k0.w, k1.x, k1.y, k1.z, k1.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) c[i * 8 + j] = fmaf(q[i], k[j], d ? c[i * 8 + j] : 0.0f);
    }
}

// The products of half a block's keys with a warp's 16 rows, in head order: [2 rows][8 keys] of a lane come first.
__device__ __forceinline__ void multiply_half(u32 queries, u32 keys, float (&s)[64]) {
    float left[64], right[64];
#pragma unroll 1
    for (int run = 0; run < QUARTER / 8; run += 2) {
        chain_run(queries + run * (8 * QUERY_BYTES), keys + run * (8 * KEY_BYTES), left);
        chain_run(queries + (run + 1) * (8 * QUERY_BYTES), keys + (run + 1) * (8 * KEY_BYTES), right);
        if (run == 0) {
#pragma unroll
            for (int i = 0; i < 64; i++) s[i] = left[i] + right[i];
        } else {
#pragma unroll
            for (int i = 0; i < 64; i++) s[i] += left[i] + right[i];
        }
    }
#pragma unroll
    for (int i = 0; i < 32; i++) s[i] += __shfl_xor_sync(~0u, s[i + 32], 8);
#pragma unroll
    for (int i = 0; i < 16; i++) s[i] += __shfl_xor_sync(~0u, s[i + 16], 16);
}

// The maximum; no number where either is none.
__device__ __forceinline__ float larger(float a, float b) {
    float x;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
}

// Scores of a block to shared memory; most: the maxima of a lane's rows so far.
__device__ __forceinline__ void score_block(u32 queries, u32 keys, u32 scores, const ScorePlace& place, const Tile& tile,
                                            int block, const Numbers& with, float (&most)[ROWS_OF_LANE]) {
    const Sequence& sequence = tile.sequence;
    const u32 own_queries = queries + place.quarter * QUERY_QUARTER + place.row / 16 * 64 + place.y * 16;
    const u32 own_keys = keys + place.quarter * KEY_QUARTER + place.x * 16;
#pragma unroll 1
    for (int half = 0; half < 2; half++) {
        float s[64];
        multiply_half(own_queries, own_keys + half * 128, s);
#pragma unroll
        for (int i = 0; i < ROWS_OF_LANE * KEYS_OF_LANE; i++) s[i] = (BF16 ? settle(s[i]) : s[i]) * with.scale;
        if (block >= tile.seen.masked) {
#pragma unroll
            for (int i = 0; i < ROWS_OF_LANE * KEYS_OF_LANE; i++) {
                const int position = block * BN + place.position(half, i % KEYS_OF_LANE);
                const int row = tile.tile * BM + place.row + i / KEYS_OF_LANE;
                const int own = sequence.length - sequence.count + row / GROUP;
                bool is_seen = position <= (CAUSAL ? own : sequence.length - 1);
                if (WINDOW) is_seen &= position >= own - with.window;
                s[i] = is_seen ? s[i] : NEG_INF;
            }
        }
#pragma unroll
        for (int k = 0; k < KEYS_OF_LANE; k++) {
            asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(score_at(scores, place.position(half, k), place.row)),
                         "f"(s[k]), "f"(s[KEYS_OF_LANE + k])
                         : "memory");
#pragma unroll
            for (int r = 0; r < ROWS_OF_LANE; r++) most[r] = larger(most[r], s[r * KEYS_OF_LANE + k]);
        }
    }
}
