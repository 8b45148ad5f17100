// Products with plain weights, f32, f16 or bf16, in rows16: 16 rows in the lanes, stream order over K.
#pragma once
#include "pack.h"
#include "rows.h"
#include "segments.h"

namespace samebits::SAMEBITS_ISA {

// One k of 16 rows as float32.
template <Format W>
INLINE F weight_at(const uint8_t* group, int64_t k) {
    if constexpr (W == Format::f32) return load(reinterpret_cast<const float*>(group) + k * kGroup);
    const uint16_t* p = reinterpret_cast<const uint16_t*>(group) + k * kGroup;
    if constexpr (W == Format::f16) return load_f16(p);
    return load_bf16(p);
}

// x rounded to the weight's type, as products need it. False where a value is none that products allow.
inline bool round_operands(const float* x, int64_t n, Format format, float* to) {
    bool allowed = true;
    for (int64_t i = 0; i < n; i += 16) {
        const int count = int(least(16, n - i));
        F v = load_partial(x + i, count);
        if (format == Format::f16) v = round_f16(v);
        if (format == Format::bf16) v = round_bf16(v);
        allowed &= all(abs(v) <= set(format == Format::bf16 ? 0x1p63f : 0x1.fffffep127f));
        store_partial(to + i, v, count);
    }
    return allowed;
}

// 16 rows for T tokens whose operands lie `stride` elements apart.
template <Format W, int T>
INLINE void float_tile(const uint8_t* group, int64_t width, const float* x, int64_t stride, F (&total)[T]) {
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) total[t] = zero();
    for (int64_t cut = 0; cut < width; cut += kCut) {
        const int64_t cut_end = least(cut + kCut, width);
        F sum[T];
#pragma GCC unroll 8
        for (int t = 0; t < T; t++) sum[t] = zero();
        for (int64_t run = cut; run < cut_end; run += kRun) {
            const int64_t run_end = least(run + kRun, cut_end);
            F chain[T];
#pragma GCC unroll 8
            for (int t = 0; t < T; t++) chain[t] = zero();
            for (int64_t k = run; k < run_end; k++) {
                const F w = weight_at<W>(group, k);
                if (T == 1) prefetch(group + k * kGroup * (W == Format::f32 ? 4 : 2) + 4096);
#pragma GCC unroll 8
                for (int t = 0; t < T; t++) {
                    const F a = set(x[t * stride + k]);
                    chain[t] = W == Format::f32 ? chain[t] + a * w : fma_exact(a, w, chain[t]);
                }
            }
#pragma GCC unroll 8
            for (int t = 0; t < T; t++) sum[t] = sum[t] + chain[t];
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; t++) total[t] = total[t] + sum[t];
    }
}

// y = x @ weight^T + bias; x holds operands of the weight's type, as float32, a row of `width` for every place.
struct FloatProduct {
    Segments segments;
    const float* x;
    const uint8_t* weight;  // matrices in rows16, one after another
    Format format;
    int64_t rows, width;
    const Tensor* bias;  // [rows] or [matrices, rows], or null
    const Tensor& y;
};

// Rows `row` on of T tokens, the first of them at place i.
template <Format W, int T>
INLINE void float_tokens(const FloatProduct& p, const uint8_t* group, int64_t row, const F* added, int64_t i) {
    const int n = int(least(kGroup, p.rows - row));
    F total[T];
    float_tile<W, T>(group, p.width, p.x + i * p.width, p.width, total);
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) {
        total[t] = settle(total[t]);
        if (added) total[t] = settle(total[t] + *added);
        store_lanes(p.y, p.segments.y_row(i + t), row, total[t], n);
    }
}

template <Format W>
void multiply_floats_as(const FloatProduct& p, Worker& worker) {
    const int64_t groups = (p.rows + kGroup - 1) / kGroup;
    const size_t group_stride = group_bytes(W, p.width);
    WorkList work(p.segments, groups);
    for (int64_t item, g; worker.claim_near(work.total(), item);) {
        const Part part = work.find(item, g);
        const int64_t matrix = p.segments.matrix(part.segment), row = g * kGroup, end = part.first + part.tokens;
        const uint8_t* group = p.weight + size_t(matrix * groups + g) * group_stride;
        const F bias = p.bias ? load_lanes(*p.bias, matrix, row, int(least(kGroup, p.rows - row))) : zero();
        const F* added = p.bias ? &bias : nullptr;
        int64_t i = part.first;
        for (; i + kTile <= end; i += kTile) float_tokens<W, kTile>(p, group, row, added, i);
        for (; kTile > 4 && i + 4 <= end; i += 4) float_tokens<W, 4>(p, group, row, added, i);
        for (; i < end; i++) float_tokens<W, 1>(p, group, row, added, i);
    }
}

inline void multiply_floats(const FloatProduct& p, Worker& worker) {
    if (p.format == Format::f32) multiply_floats_as<Format::f32>(p, worker);
    else if (p.format == Format::f16) multiply_floats_as<Format::f16>(p, worker);
    else multiply_floats_as<Format::bf16>(p, worker);
}

}  // namespace samebits::SAMEBITS_ISA
