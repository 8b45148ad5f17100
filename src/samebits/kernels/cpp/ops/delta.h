// gated_delta_rule: heads of v share one of k, and u is what k does not find in the state.
#pragma once
#include "recurrence.h"

namespace samebits::SAMEBITS_ISA {

struct DeltaRule {
    static constexpr bool kHasDelta = true;
    const Tensor *a, *b;
    const float *decay, *bias;

    // g = decay * softplus(a + bias) and beta = sigmoid(b) of tokens in the lanes.
    INLINE void gates(int64_t h, int64_t row, int64_t count, F& gate, F& beta) const {
        gate = settle(set(decay[h]) * softplus(settle(token_lanes(*a, row, count, h) + set(bias[h]))));
        beta = sigmoid(token_lanes(*b, row, count, h));
    }
    INLINE F output(int64_t, F out, F) const { return out; }
};

// q, k, v, a, b, decay, dt_bias, state, ring, qo_indptr, positions, slots -> o, state, ring; scale, v_heads
inline Scan delta_scan(const Call& call) {
    return Scan(*call.in[0], *call.in[1], *call.in[2], *call.out[0], *call.in[7], *call.in[8], call.real(0),
                call.integer(1) == 1);
}

inline Scratch delta_scratch(const Call& call, int) { return {Chunk::bytes(delta_scan(call)), 0}; }

inline void run_gated_delta_rule(const Call& call, Worker& worker) {
    const DeltaRule rule{call.in[3], call.in[4], call.in[5]->as<float>(), call.in[6]->as<float>()};
    run_scan(rule, delta_scan(call), Runs(*call.in[9], *call.in[10], *call.in[11]), worker);
}

}  // namespace samebits::SAMEBITS_ISA
