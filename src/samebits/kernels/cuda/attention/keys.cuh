// Scores of a run: products of 8 elements in a chain, joined over the lanes of a key.
#pragma once
#include "block.cuh"
#include "numbers.cuh"

static constexpr int LANES = D / 8, ROWS = 32 / LANES;  // lanes of a key, keys of an instruction
static constexpr int STEPS = RUN / ROWS;                // to read all keys of a run
static constexpr int TOGETHER = LANES / HEADS_UP < STEPS ? LANES / HEADS_UP : STEPS;  // steps whose sums are joined at once
static constexpr int SUMS = TOGETHER * HEADS_UP;

// The number of the sum, steps times HEADS_UP and head, that a lane ends with.
__device__ __forceinline__ int sum_of_lane(int lane) {
    int number = 0;
#pragma unroll
    for (int mask = 1, count = SUMS / 2; count > 0; mask *= 2, count /= 2) number += lane & mask ? count : 0;
    return number;
}

// Eight elements of every head's query, from `element` on; heads in a lane's order, see join_lanes.
__device__ __forceinline__ void load_queries(const u8* queries, int* fault, int element, int number,
                                             float (&q)[HEADS_UP][8]) {
    bool is_good = true;
#pragma unroll
    for (int g = 0; g < HEADS_UP; g++) {
        const int head = g ^ number % HEADS_UP;
        if (head >= HEADS) {
#pragma unroll
            for (int j = 0; j < 8; j++) q[g][j] = 0.0f;
            continue;
        }
        const u8* const from = queries + head * QUERY_BYTES + element * (QUERY_BYTES / D);
        if constexpr (WIDE_Q) {
            const float4 low = ((const float4*)from)[0], high = ((const float4*)from)[1];
            q[g][0] = low.x, q[g][1] = low.y, q[g][2] = low.z, q[g][3] = low.w;
            q[g][4] = high.x, q[g][5] = high.y, q[g][6] = high.z, q[g][7] = high.w;
        } else {
            const uint4 x = *(const uint4*)from;
            widen(x.x, q[g][0], q[g][1]), widen(x.y, q[g][2], q[g][3]);
            widen(x.z, q[g][4], q[g][5]), widen(x.w, q[g][6], q[g][7]);
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            if (WIDE_Q) q[g][j] = operand(q[g][j]);
            const bool is_fine = fabsf(q[g][j]) <= LARGEST_OPERAND;
            is_good &= is_fine, q[g][j] = is_fine ? q[g][j] : 0.0f;  // so that no key or value is blamed for it
        }
    }
    if (!is_good) *fault = BAD_QUERY;
}

// Adjacent pairs over the lanes of a key, of all sums at once. In place i a lane has the sum of number i ^ sum_of_lane(lane):
// so it keeps the lower half of its places and hands on the upper one, without a choice, and ends with place 0.
template <int MASK = 1, int COUNT = SUMS / 2>
__device__ __forceinline__ float join_lanes(float (&x)[SUMS]) {
    if constexpr (MASK == LANES) {
        return x[0];
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i++) x[i] += __shfl_xor_sync(~0u, x[i + COUNT], MASK);
        if (COUNT == 0) x[0] += __shfl_xor_sync(~0u, x[0], MASK);
        return join_lanes<MASK * 2, COUNT / 2>(x);
    }
}

// Scores of a run of keys in shared memory, to scores [16][HEADS_UP]; their maximum, of the head that a lane's sums are of.
__device__ __forceinline__ float score_run(u32 keys, const float (&q)[HEADS_UP][8], float* scores, const Stretch& s, int run,
                                           float scale, int lane, bool& is_wrong) {
    const int number = sum_of_lane(lane), head = number % HEADS_UP;
    float most = NEG_INF;
#pragma unroll
    for (int first = 0; first < STEPS; first += TOGETHER) {
        float x[SUMS];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int row = (first + (i ^ number / HEADS_UP)) * ROWS + lane / LANES;
            u32 pairs[4];
            float k[8];
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                         : "r"(keys + row * (D * 2) + lane % LANES * 16));
#pragma unroll
            for (int j = 0; j < 4; j++) widen(pairs[j], k[2 * j], k[2 * j + 1]);
#pragma unroll
            for (int g = 0; g < HEADS_UP; g++) {
                float sum = 0.0f;
#pragma unroll
                for (int j = 0; j < 8; j++) sum = fmaf(k[j], q[g][j], sum);
                x[i * HEADS_UP + g] = sum;
            }
        }
        float score = join_lanes(x);
        if (BF16) score = settle(score);
        score *= scale;
        const int row = (first + number / HEADS_UP) * ROWS + lane / LANES, position = run * RUN + row;
        const bool is_seen = position < s.length && (!WINDOW || position >= s.low) && (HEADS == HEADS_UP || head < HEADS);
        is_wrong |= is_seen && !(score <= LARGEST);
        score = is_seen ? score : NEG_INF;
        if (lane % LANES < SUMS) scores[row * HEADS_UP + head] = score;
        most = fmaxf(most, score);
    }
    return most;
}

// The maximum over the lanes whose sums are of the same head.
__device__ __forceinline__ float most_of_head(float most) {
#pragma unroll
    for (int mask = 1, count = SUMS / 2; mask < 32; mask *= 2, count /= 2)
        if (count >= HEADS_UP || count == 0) most = fmaxf(most, __shfl_xor_sync(~0u, most, mask));
    return most;
}
