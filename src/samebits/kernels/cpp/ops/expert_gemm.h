// expert_gemm, expert_gemm_q8, expert_gate_q8: the products of gemm.h over pairs of a token and an expert it chose. The
// pairs of an expert lie together in the layout; results lie in the order of pairs.
#pragma once
#include "gemm.h"

namespace samebits::SAMEBITS_ISA {

// Segments of pairs on `x_rows` rows of x; false, and a failure noted, where they are none.
INLINE bool read_layout(const Tensor& pairs, const Tensor& seg_indptr, int64_t x_rows, Segments& to, Worker& worker) {
    const int64_t num_pairs = pairs.shape[0], experts = seg_indptr.shape[0] - 1;
    to = {seg_indptr.as<int32_t>(), experts, nullptr, pairs.as<int32_t>(), x_rows ? num_pairs / x_rows : 1};
    if (!are_segments(to.ends, experts, num_pairs)) {
        worker.fail({"seg_indptr", "other ends", "0 first, the number of pairs last, rising"});
        return false;
    }
    bool exist = true;
    for (int64_t i = 0; i < num_pairs; i++) exist &= uint32_t(to.pairs[i]) < uint32_t(num_pairs);
    if (!exist || to.pairs_per_row < 1 || to.pairs_per_row * x_rows != num_pairs) {
        worker.fail({"pairs", "no such pair, or no multiple of the rows of x", "every pair once, as many for every row"});
        return false;
    }
    return true;
}

inline void run_expert_gemm(const Call& call, Worker& worker) {  // x, weight, pairs, seg_indptr, bias? -> y
    Segments segments;
    if (!read_layout(*call.in[2], *call.in[3], call.in[0]->shape[0], segments, worker)) return;
    multiply_any(*call.in[0], *call.in[1], segments, call.in[4], *call.out[0], worker);
}

inline Scratch expert_gemm_scratch(const Call& call, int) {
    return gemm_memory(*call.in[1], call.in[2]->shape[0], call.in[3]->shape[0] - 1, true);
}

inline void run_expert_gemm_q8(const Call& call, Worker& worker) {  // codes, scales, weight, pairs, seg_indptr, bias? -> y
    Segments segments;
    if (!read_layout(*call.in[3], *call.in[4], call.in[0]->shape[0], segments, worker)) return;
    BlockProduct p = quantized_product(*call.in[0], *call.in[1], *call.in[2], segments, worker);
    p.choose_units(worker.count);
    PlainResult result{*call.out[0], call.in[5], p};
    result.take(p);
    multiply_blocks(p, worker);
}

// As above -> codes, scales; activation, alpha, limit.
inline void run_expert_gate_q8(const Call& call, Worker& worker) {
    Segments segments;
    if (!read_layout(*call.in[3], *call.in[4], call.in[0]->shape[0], segments, worker)) return;
    BlockProduct p = quantized_product(*call.in[0], *call.in[1], *call.in[2], segments, worker);
    switch (call.integer(0)) {  // CHOICES of kernels/cpp/table.py
        case 1: return multiply_gated(p, call, call.in[5], SiluMul{}, worker);
        case 2: return multiply_gated(p, call, call.in[5], GeluTanhMul{}, worker);
        default: return multiply_gated(p, call, call.in[5], ClampedMul(call.real(1), call.real(2)), worker);
    }
}

inline Scratch expert_q8_scratch(const Call& call, int) {
    return gemm_memory(*call.in[2], call.in[3]->shape[0], call.in[4]->shape[0] - 1, false);
}

}  // namespace samebits::SAMEBITS_ISA
