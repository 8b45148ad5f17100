// ssm_scan: C is q, B is k, and u = dt * x needs nothing of the state.
#pragma once
#include "recurrence.h"

namespace samebits::SAMEBITS_ISA {

struct SsmRule {
    static constexpr bool kHasDelta = false;
    const Tensor* dt;
    const float *decay, *bias, *skip;  // skip: D, or null
    float dt_min, dt_max;

    // g = dt * decay and dt of tokens in the lanes.
    INLINE void gates(int64_t h, int64_t row, int64_t count, F& gate, F& step) const {
        step = softplus(settle(token_lanes(*dt, row, count, h) + set(bias[h])));
        step = min(max(step, set(dt_min)), set(dt_max));
        gate = settle(step * set(decay[h]));
    }
    INLINE F output(int64_t h, F out, F x) const { return skip ? settle(out + set(skip[h]) * x) : out; }
};

// x, dt, B, C, decay, dt_bias, state, ring, qo_indptr, positions, slots, D? -> y, state, ring; dt_min, dt_max
inline Scan ssm_scan_of(const Call& call) {
    return Scan(*call.in[3], *call.in[2], *call.in[0], *call.out[0], *call.in[6], *call.in[7], 1.0f, false);
}

inline Scratch ssm_scratch(const Call& call, int) { return {Chunk::bytes(ssm_scan_of(call)), 0}; }

inline void run_ssm_scan(const Call& call, Worker& worker) {
    const float* skip = call.in[11] ? call.in[11]->as<float>() : nullptr;
    const SsmRule rule{call.in[1], call.in[4]->as<float>(), call.in[5]->as<float>(), skip, call.real(0), call.real(1)};
    run_scan(rule, ssm_scan_of(call), Runs(*call.in[8], *call.in[9], *call.in[10]), worker);
}

}  // namespace samebits::SAMEBITS_ISA
