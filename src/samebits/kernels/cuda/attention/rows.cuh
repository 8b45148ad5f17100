// Rows of results: of a part's heads, and those that nobody asked for.
#pragma once
#include "values.cuh"

// A row of a part's heads: the sums over the row's cuts become its result.
__device__ __forceinline__ void finish(const Pointers& at, const Stretch& s, int thread, const Sums& sums, float largest,
                                       float sink) {
    float total = sums.total;
    if (HAS_SINKS) total = total + exp_of(sink - (largest == NEG_INF ? 0.0f : largest));
    const bool is_seen = total > 0.0f;
    const float factor = is_seen ? recip(total) : 0.0f;
    const u64 to = ((u64)s.token * PARTS + s.part) * (HEADS * D) + thread * OUTPUTS;
    bool is_good = true;
#pragma unroll
    for (int j = 0; j < OUTPUTS; j++) {
        const float x = sums.out[j] * factor;
        is_good &= fabsf(x) <= LARGEST;
        if constexpr (WIDE_Q)
            ((float*)at.out)[to + j] = settle(x);
        else
            ((u16*)at.out)[to + j] = settled_narrow(x);
    }
    if (!is_good) *at.fault = BAD_VALUE;
}

// Rows that no sequence has, and those of a sequence without positions; and what is wrong with the batch.
__device__ __forceinline__ void clear_rows(const Pointers& at, const Batch& batch, int lane) {
    auto clear = [&](int token) {
        const u64 to = (u64)token * (PARTS * HEADS * D);
        for (int i = lane; i < PARTS * HEADS * D; i += 32) {
            if constexpr (WIDE_Q)
                ((float*)at.out)[to + i] = 0.0f;
            else
                ((u16*)at.out)[to + i] = 0;
        }
    };
    for (int token = max(batch.qo_indptr[batch.num_sequences], 0) + blockIdx.x; token < batch.num_tokens; token += gridDim.x)
        clear(token);
    for (int b = blockIdx.x; b < batch.num_sequences; b += gridDim.x) {
        const Sequence s = batch.at(b);
        if (s.count == 1 && s.length == 0) clear(s.first);
        if (lane == 0) {
            if (!batch.is_sound(b)) *at.fault = BAD_TABLE;
            if (CAUSAL && s.count > s.length) *at.fault = BAD_COUNT;
        }
    }
}
