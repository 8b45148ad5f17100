// merge_state: two partial attention outputs and their log-sum-exps become one.
#pragma once
#include "elementary.h"
#include "rows.h"

namespace samebits::SAMEBITS_ISA {

constexpr float kLn2 = 0.6931471805599453f;

// (a * weight_a + b * weight_b) * factor; an empty state counts as +0, whatever it holds.
struct Merged {
    F weight_a, weight_b, factor;
    INLINE static F weighted(F v, F weight) { return select(weight > zero(), v * weight, zero()); }
    INLINE F operator()(F a, F b) const { return settle((weighted(a, weight_a) + weighted(b, weight_b)) * factor); }
};

inline Scratch state_scratch(const Call& call, int) {
    return {size_t(3 * round_up(call.in[0]->width(), 16) * 4), 0};
}

inline void run_merge_state(const Call& call, Worker& worker) {  // v_a, s_a, v_b, s_b -> v, s
    const Tensor &v_a = *call.in[0], &v_b = *call.in[2], &v = *call.out[0];
    const int64_t width = v_a.width(), step = round_up(width, 16);
    float* room = reinterpret_cast<float*>(worker.scratch);
    const RowRange rows = own_rows(v_a, worker);
    for (int64_t i = rows.first; i < rows.last; i++) {
        const float s_a = float_element(*call.in[1], i), s_b = float_element(*call.in[3], i);
        if (!(s_a < kInfinity)) worker.fail({"s_a", "NaN or +Inf", "finite values or -Inf"});
        if (!(s_b < kInfinity)) worker.fail({"s_b", "NaN or +Inf", "finite values or -Inf"});
        const float largest = s_a > s_b ? s_a : s_b, shift = largest == -kInfinity ? 0.0f : largest;
        const float weight_a = exp((s_a - shift) * kLn2), weight_b = exp((s_b - shift) * kLn2);
        const float total = weight_a + weight_b;
        const float factor = total > 0 ? recip(total) : 0.0f;
        float* result = write_row(v, i, room + 2 * step);
        const Merged merged{set(weight_a), set(weight_b), set(factor)};
        map_row(merged, read_row(v_a, i, room), read_row(v_b, i, room + step), result, width);
        finish_row(v, i, result);
        const float s = settle(largest + first(log2(set(total > 0 ? total : 1.0f))));
        memcpy(element(*call.out[1], i), &s, 4);
    }
}

}  // namespace samebits::SAMEBITS_ISA
