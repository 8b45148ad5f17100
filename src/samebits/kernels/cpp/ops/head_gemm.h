// The op head_gemm: the rows of a head are a segment of their own. In x and y they lie among those of the other heads,
// as the pairs of an expert do.
#pragma once
#include "gemm.h"

namespace samebits::SAMEBITS_ISA {

// Row t * heads + h of x and y stands at place h * tokens + t. `room` has 1 + heads + tokens * heads numbers.
INLINE Segments head_segments(int64_t tokens, int64_t heads, int32_t* room) {
    int32_t *ends = room, *pairs = room + heads + 1;
    for (int64_t h = 0; h <= heads; h++) ends[h] = int32_t(h * tokens);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t t = 0; t < tokens; t++) pairs[h * tokens + t] = int32_t(t * heads + h);
    return {ends, heads, nullptr, pairs};
}

// The product's own; then each thread keeps the places, so that none waits for another.
inline Scratch product_of_heads_scratch(const Tensor& x, const Tensor& weight) {
    Scratch need = gemm_memory(weight, x.num_rows(), weight.shape[0], true);
    need.per_thread = size_t(round_up(int64_t(need.per_thread), 64));
    return need;
}

inline void run_head_gemm(const Call& call, Worker& worker) {  // x, weight -> y
    const Tensor &x = *call.in[0], &weight = *call.in[1];
    int32_t* room = reinterpret_cast<int32_t*>(worker.scratch + product_of_heads_scratch(x, weight).per_thread);
    Tensor y = *call.out[0];  // as rows, which follow each other
    y.rank = 2, y.shape[0] = x.num_rows(), y.shape[1] = y.shape[2];
    y.stride[0] = y.stride[1], y.stride[1] = y.stride[2];
    multiply_any(x, weight, head_segments(x.shape[0], x.shape[1], room), nullptr, y, worker);
}

inline Scratch head_gemm_scratch(const Call& call, int) {
    const Tensor& x = *call.in[0];
    Scratch need = product_of_heads_scratch(x, *call.in[1]);
    need.per_thread += size_t(1 + x.shape[1] + x.num_rows()) * sizeof(int32_t);
    return need;
}

}  // namespace samebits::SAMEBITS_ISA
