// Weights of a run and their sums with values; sums of cuts.
#pragma once
#include "block.cuh"
#include "numbers.cuh"

static constexpr int COLUMNS = D / 32;                           // of a lane
static constexpr int OUTPUTS = 2, OWNERS = HEADS * D / OUTPUTS;  // of a thread; threads that have some

// A run's weights, in the place of its scores, and behind them the sums of what they were before rounding; shift: that of
// head lane % HEADS_UP.
__device__ __forceinline__ void weigh_run(float* scores, float shift, int lane) {
    constexpr int COUNT = (RUN * HEADS_UP + 31) / 32;
    float p[COUNT], total = 0.0f;
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        const int i = n * 32 + lane;
        const bool is_one = RUN * HEADS_UP >= 32 || i < RUN * HEADS_UP;
        p[n] = exp_of((is_one ? scores[i] : NEG_INF) - shift);
        if (is_one) scores[i] = operand(p[n]);
    }
#pragma unroll
    for (int i = 0; i < RUN; i++) total += __shfl_sync(~0u, p[i * HEADS_UP / 32], i * HEADS_UP % 32 + lane % HEADS_UP);
    if (lane < HEADS_UP) scores[RUN * HEADS_UP + lane] = total;
    __syncwarp();
}

// Zeros where values are not seen: what lies there may be no number.
__device__ __forceinline__ void clear_unseen(u32 values, const Stretch& s, int run, int lane) {
#pragma unroll
    for (int i = 0; i < RUN; i++) {
        const int position = run * RUN + i;
        if (position < s.low || position >= s.length)
            asm volatile("st.shared.v2.b32 [%0], {%1, %1};" ::"r"(values + i * (D * 2) + lane % (D / 4) * 8), "r"(0)
                         : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // before the next copy to this place
    __syncwarp();
}

// The chain of a run's weights times values, for every head and a lane's columns.
__device__ __forceinline__ void sum_run(u32 values, const float* weights, float (&sums)[HEADS][COLUMNS], int lane) {
#pragma unroll
    for (int i = 0; i < RUN; i++) {
        u32 pairs[COLUMNS / 2];
        const u32 place = values + i * (D * 2) + lane * (COLUMNS * 2);
        if constexpr (COLUMNS == 4)
            asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(pairs[0]), "=r"(pairs[1]) : "r"(place));
        else
            asm volatile("ld.shared.b32 %0, [%1];" : "=r"(pairs[0]) : "r"(place));
        float v[COLUMNS], p[HEADS_UP];
#pragma unroll
        for (int j = 0; j < COLUMNS / 2; j++) widen(pairs[j], v[2 * j], v[2 * j + 1]);
        if constexpr (HEADS_UP == 4) {
            const float4 four = *(const float4*)(weights + i * HEADS_UP);
            p[0] = four.x, p[1] = four.y, p[2] = four.z, p[3] = four.w;
        } else {
#pragma unroll
            for (int g = 0; g < HEADS; g++) p[g] = weights[i * HEADS_UP + g];
        }
#pragma unroll
        for (int g = 0; g < HEADS; g++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) sums[g][j] = fmaf(p[g], v[j], i ? sums[g][j] : 0.0f);
    }
}

__device__ __forceinline__ void store_columns(u32 to, const float (&x)[COLUMNS]) {
    if constexpr (COLUMNS == 4)
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                     : "memory");
    else
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x[0]), "f"(x[1]) : "memory");
}

// Of a thread: sums of OUTPUTS neighbouring columns of a head, and of the head's weights.
struct Sums {
    float out[OUTPUTS] = {}, total = 0.0f;

    __device__ __forceinline__ void add(const Sums& x) {
#pragma unroll
        for (int j = 0; j < OUTPUTS; j++) out[j] += x.out[j];
        total += x.total;
    }
};

// Sums of a cut in memory: HEADS rows of D, then the sums of weights.
__device__ __forceinline__ float* sums_of_cut(const Pointers& at, const Numbers& with, const Batch& batch, const Stretch& s,
                                              int cut) {
    const u64 nth = (u64)s.part * with.num_slots + (u64)s.entry * batch.page_size / CUT + s.sequence + cut;
    return at.cuts + nth * (HEADS * (D + 1));
}
__device__ __forceinline__ void store_cut(float* to, int thread, int head, const Sums& x) {
#pragma unroll
    for (int j = 0; j < OUTPUTS; j++) to[thread * OUTPUTS + j] = x.out[j];
    to[HEADS * D + head] = x.total;
}
__device__ __forceinline__ Sums load_cut(const float* from, int thread, int head) {
    Sums x;
#pragma unroll
    for (int j = 0; j < OUTPUTS; j++) x.out[j] = __ldcg(from + thread * OUTPUTS + j);
    x.total = __ldcg(from + HEADS * D + head);
    return x;
}
