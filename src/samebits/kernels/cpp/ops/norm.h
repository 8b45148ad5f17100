// rms_norm, l2_norm, fused_add_rms_norm, layer_norm: a row at a time.
#pragma once
#include "elementary.h"
#include "rows.h"
#include "sums.h"

namespace samebits::SAMEBITS_ISA {

// Rows in float32 for a call whose tensors may be 16-bit: x, result and the shared rows (weight, bias).
inline Scratch norm_scratch(const Call& call, int) { return {size_t(5 * round_up(call.in[0]->width(), 16) * 4), 0}; }

struct NormRow {
    const float *weight, *bias;
    int64_t width;
    float inverse_width, eps;
};

INLINE F scaled(const NormRow& p, F x, F factor, int64_t i, int n) {
    F y = settle(x * factor);
    if (p.weight) y = y * load_partial(p.weight + i, n);
    if (p.bias) y = y + load_partial(p.bias + i, n);
    return p.weight || p.bias ? settle(y) : y;
}

INLINE void rms_norm_row(const NormRow& p, const float* x, float* y) {
    const float sum = row_sum(p.width, [=](int64_t i, int n) __attribute__((always_inline)) {
        const F v = load_partial(x + i, n);
        return v * v;
    });
    const F factor = set(rsqrt(settle(sum) * p.inverse_width + p.eps));
    for (int64_t i = 0; i < p.width; i += 16) {
        const int n = int(least(16, p.width - i));
        store_partial(y + i, scaled(p, load_partial(x + i, n), factor, i, n), n);
    }
}

// Over the sum itself, in the place of the mean.
INLINE void l2_norm_row(const NormRow& p, const float* x, float* y) {
    rms_norm_row(NormRow{nullptr, nullptr, p.width, 1.0f, p.eps}, x, y);
}

INLINE void layer_norm_row(const NormRow& p, const float* x, float* y) {
    const float sum = row_sum(p.width, [=](int64_t i, int n) { return load_partial(x + i, n); });
    const F mean = set(settle(sum) * p.inverse_width);
    for (int64_t i = 0; i < p.width; i += 16) {
        const int n = int(least(16, p.width - i));
        store_partial(y + i, settle(load_partial(x + i, n) - mean), n);
    }
    rms_norm_row(p, y, y);
}

INLINE NormRow norm_row(int64_t width, const Tensor* weight, const Tensor* bias, float eps, float* room) {
    NormRow p{nullptr, nullptr, width, width ? float(1.0 / double(width)) : 0.0f, eps};
    if (weight) p.weight = read_row(*weight, 0, room);
    if (bias) p.bias = read_row(*bias, 0, room + round_up(width, 16));
    return p;
}

template <void (*Row)(const NormRow&, const float*, float*)>
void run_norm(const Call& call, Worker& worker) {  // x, weight?, bias? -> y; eps
    const Tensor &x = *call.in[0], &y = *call.out[0];
    const int64_t width = x.width(), inner = x.rank > 1 && x.shape[0] ? x.num_rows() / x.shape[0] : 1;
    float* room = reinterpret_cast<float*>(worker.scratch);
    const NormRow p = norm_row(width, call.in[1], call.in[2], call.real(0), room + 2 * round_up(width, 16));
    int64_t start, stop;
    worker.share(x.rank > 1 ? x.shape[0] : 1, start, stop);
    for (int64_t i = start * inner; i < stop * inner; i++) {
        float* result = write_row(y, i, room + round_up(width, 16));
        Row(p, read_row(x, i, room), result);
        finish_row(y, i, result);
    }
}

inline void run_rms_norm(const Call& call, Worker& worker) { run_norm<rms_norm_row>(call, worker); }
inline void run_l2_norm(const Call& call, Worker& worker) { run_norm<l2_norm_row>(call, worker); }
inline void run_layer_norm(const Call& call, Worker& worker) { run_norm<layer_norm_row>(call, worker); }

inline void run_fused_add_rms_norm(const Call& call, Worker& worker) {  // x, residual, weight -> y, residual; eps
    const Tensor &x = *call.in[0], &residual = *call.out[1], &y = *call.out[0];
    const int64_t width = x.width(), inner = x.rank > 1 && x.shape[0] ? x.num_rows() / x.shape[0] : 1;
    const int64_t step = round_up(width, 16);
    float* room = reinterpret_cast<float*>(worker.scratch);
    const NormRow p = norm_row(width, call.in[2], nullptr, call.real(0), room + 3 * step);
    int64_t start, stop;
    worker.share(x.rank > 1 ? x.shape[0] : 1, start, stop);
    for (int64_t i = start * inner; i < stop * inner; i++) {
        const float* added = read_row(x, i, room);
        const float* old = read_row(residual, i, room + step);
        float* sum = write_row(residual, i, room + step);
        for (int64_t j = 0; j < width; j += 16) {
            const int n = int(least(16, width - j));
            store_partial(sum + j, settle(load_partial(old + j, n) + load_partial(added + j, n)), n);
        }
        finish_row(residual, i, sum);
        const float* rounded = read_row(residual, i, room + step);
        float* result = write_row(y, i, room + 2 * step);
        rms_norm_row(p, rounded, result);
        finish_row(y, i, result);
    }
}

}  // namespace samebits::SAMEBITS_ISA
