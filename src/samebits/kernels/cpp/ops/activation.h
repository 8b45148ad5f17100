// silu_and_mul, gelu_and_mul, clamped_swiglu: the gate in the first half of a row, the up projection in the second.
#pragma once
#include "elementary.h"
#include "rows.h"

namespace samebits::SAMEBITS_ISA {

struct SiluMul {
    template <class V>
    INLINE V operator()(const V& gate, const V& up) const { return settle((gate * sigmoid(gate)) * up); }
};

struct GeluTanhMul {
    template <class V>
    INLINE V operator()(const V& gate, const V& up) const {
        const V cube = (gate * gate) * gate;
        const V u = set(0.7978845608028654f) * (gate + set(0.044715f) * cube);
        return settle((gate * sigmoid(u + u)) * up);
    }
};

struct GeluErfMul {
    template <class V>
    INLINE V operator()(const V& gate, const V& up) const {
        return settle(((set(0.5f) * gate) * erfc(zero() - gate * set(0.7071067811865476f))) * up);
    }
};

// A NaN stays one: of two lanes that do not compare, min and max take the second.
struct ClampedMul {
    F alpha, limit, lowest;
    INLINE ClampedMul(float alpha_, float limit_) : alpha(set(alpha_)), limit(set(limit_)), lowest(set(-limit_)) {}
    template <class V>
    INLINE V operator()(const V& gate, const V& up) const {
        const V g = min(limit, gate), u = min(limit, max(lowest, up));
        return settle((u + set(1.0f)) * (g * sigmoid(settle(g * alpha))));
    }
};

// y = act(gate, up) of a row.
template <class Act>
INLINE void gate_row(const Act& act, const float* gate, const float* up, float* y, int64_t width) {
    constexpr int64_t step = 16 * kSeveral;
    int64_t i = 0;
    for (; i + step <= width; i += step) store(y + i, act(load_several<kSeveral>(gate + i), load_several<kSeveral>(up + i)));
    map_row(act, gate + i, up + i, y + i, width - i);
}

inline Scratch gated_scratch(const Call& call, int) {
    return {size_t((round_up(call.in[0]->width(), 16) + call.out[0]->width()) * 4), 0};
}

template <class Fn>
void run_gated(const Fn& f, const Call& call, Worker& worker) {
    const Tensor &x = *call.in[0], &y = *call.out[0];
    const int64_t half = y.width();
    float* room = reinterpret_cast<float*>(worker.scratch);
    const RowRange rows = own_rows(x, worker);
    for (int64_t i = rows.first; i < rows.last; i++) {
        const float* gate = read_row(x, i, room);
        float* result = write_row(y, i, room + round_up(2 * half, 16));
        gate_row(f, gate, gate + half, result, half);
        finish_row(y, i, result);
    }
}

inline void run_silu_and_mul(const Call& call, Worker& worker) { run_gated(SiluMul{}, call, worker); }  // x -> y

inline void run_gelu_and_mul(const Call& call, Worker& worker) {  // x -> y; form
    if (call.integer(0) == 0) run_gated(GeluTanhMul{}, call, worker);
    else run_gated(GeluErfMul{}, call, worker);
}

inline void run_clamped_swiglu(const Call& call, Worker& worker) {  // x -> y; alpha, limit
    run_gated(ClampedMul(call.real(0), call.real(1)), call, worker);
}

}  // namespace samebits::SAMEBITS_ISA
