// Operands of prompts.cu's products: keys and values as float32, scores as weights.
#pragma once
#include "prompt.cuh"

// A block of keys to float32 and to elements by keys. A thread has an element's neighbours of keys 16 apart, which lie side by
// side then: what it loads is on other banks than its neighbours', and so is what it stores.
__device__ __forceinline__ void widen_keys(u32 from, u32 to) {
    constexpr int COUNT = D / 16;  // elements of a thread
    const int key = threadIdx.x % 16, element = threadIdx.x / 16 * COUNT;
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

// A block of values to float32; positions outside [low, high) are zeros: what lies there may be no number. Of every 8 columns
// the first 4 lie in the first half of a position's, so that lanes store side by side.
__device__ __forceinline__ void widen_values(u32 from, u32 to, int low, int high) {
    constexpr int COUNT = BN * (D / 8) / THREADS;  // eights of columns of a thread
    u32 pairs[COUNT][4];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const int piece = i * THREADS + (int)threadIdx.x, position = piece / 8 % BN, half = piece / (8 * BN), chunk = piece % 8;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(pairs[i][0]), "=r"(pairs[i][1]), "=r"(pairs[i][2]), "=r"(pairs[i][3])
                     : "r"(from + half * (BN * 128) + position * 128 + (chunk ^ position % 8) * 16));
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const int piece = i * THREADS + (int)threadIdx.x, position = piece / 8 % BN, half = piece / (8 * BN), chunk = piece % 8;
        const bool is_seen = position >= low && position < high;
        float x[8];
#pragma unroll
        for (int j = 0; j < 4; j++) widen(is_seen ? pairs[i][j] : 0, x[2 * j], x[2 * j + 1]);
        const u32 place = to + position * VALUE_BYTES + (half * 8 + chunk) * 16;
        store_four(place, x[0], x[1], x[2], x[3]);
        store_four(place + VALUE_BYTES / 2, x[4], x[5], x[6], x[7]);
    }
}

// The sum of a row's weights, in order: of runs, cuts and all.
struct RowTotal {
    float cut = 0.0f, all = 0.0f;
};

// A thread's row in weighing; the lane 16 above or below has the same one, and the other two runs of a block.
__device__ __forceinline__ int own_row() { return threadIdx.x / 32 * 16 + threadIdx.x % 16; }

// Scores to weights, in place, and the sums of those before they are rounded.
__device__ __forceinline__ void weigh_block(u32 scores, float shift, bool ends_cut, RowTotal& total) {
    const int row = own_row(), half = threadIdx.x / 16 % 2;
    float own[2];
#pragma unroll 1
    for (int run = 0; run < 2 * RUN; run += RUN) {
        float x[RUN], of_run = 0.0f;
#pragma unroll
        for (int n = 0; n < RUN; n++)
            asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x[n]) : "r"(score_at(scores, half * 32 + run + n, row)));
#pragma unroll
        for (int n = 0; n < RUN; n++) x[n] = exp_below(x[n] - shift);
#pragma unroll
        for (int n = 0; n < RUN; n++) {
            of_run += x[n];
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(score_at(scores, half * 32 + run + n, row)), "f"(operand(x[n]))
                         : "memory");
        }
        own[0] = own[1], own[1] = of_run;  // after both turns, the first and the second
    }
    const float other[2] = {__shfl_xor_sync(~0u, own[0], 16), __shfl_xor_sync(~0u, own[1], 16)};
    total.cut += half ? other[0] : own[0], total.cut += half ? other[1] : own[1];
    total.cut += half ? own[0] : other[0], total.cut += half ? own[1] : other[1];
    if (ends_cut) total.all += total.cut, total.cut = 0.0f;
}
