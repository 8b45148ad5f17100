// gated_rms_norm: the norm of a row, in groups, and silu of another row as its gate, after or before the norm.
#pragma once
#include "norm.h"

namespace samebits::SAMEBITS_ISA {

struct GatedRow {
    const float* weight;
    NormRow group;  // of one group, without a weight
    int64_t width;
    bool gate_first;
};

INLINE F silu(F x) { return settle(x * sigmoid(x)); }

// y may be x.
INLINE void gated_rms_norm_row(const GatedRow& p, const float* x, const float* gate, float* y) {
    if (p.gate_first)
        for (int64_t i = 0; i < p.width; i += 16) {
            const int n = int(least(16, p.width - i));
            store_partial(y + i, settle(load_partial(x + i, n) * silu(load_partial(gate + i, n))), n);
        }
    const float* normed = p.gate_first ? y : x;
    for (int64_t start = 0; start < p.width; start += p.group.width) rms_norm_row(p.group, normed + start, y + start);
    for (int64_t i = 0; i < p.width; i += 16) {
        const int n = int(least(16, p.width - i));
        const F scaled = settle(load_partial(y + i, n) * load_partial(p.weight + i, n));
        store_partial(y + i, p.gate_first ? scaled : settle(scaled * silu(load_partial(gate + i, n))), n);
    }
}

inline void run_gated_rms_norm(const Call& call, Worker& worker) {  // x, gate, weight -> y; eps, gate_first, groups
    const Tensor &x = *call.in[0], &gate = *call.in[1], &y = *call.out[0];
    const int64_t width = x.width(), step = round_up(width, 16), groups = call.integer(2);
    if (groups < 1 || width % groups) return worker.fail({"groups", "another number", "a divisor of the width"});
    float* room = reinterpret_cast<float*>(worker.scratch);
    const NormRow group = norm_row(width / groups, nullptr, nullptr, call.real(0), room);
    const GatedRow p{read_row(*call.in[2], 0, room + 3 * step), group, width, call.flag(1)};
    const RowRange rows = own_rows(x, worker);
    for (int64_t i = rows.first; i < rows.last; i++) {
        float* result = write_row(y, i, room + 2 * step);
        gated_rms_norm_row(p, read_row(x, i, room), read_row(gate, i, room + step), result);
        finish_row(y, i, result);
    }
}

}  // namespace samebits::SAMEBITS_ISA
