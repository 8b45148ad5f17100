// Products with plain weights, f32, f16 or bf16, in rows16: 16 rows in the lanes, stream order over K.
#pragma once
#include "pack.h"

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

// y [tokens, rows] = x @ weight^T + bias; x holds operands of the weight's type, as float32.
struct FloatProduct {
    const float* x;
    int64_t x_stride, tokens;
    const uint8_t* weight;
    Format format;
    int64_t rows, width;
    const float* bias;  // or null
    float* y;
    int64_t y_stride;
};

template <Format W, int T>
INLINE void float_tokens(const FloatProduct& p, int64_t g, int64_t t) {
    const int64_t row = g * kGroup;
    const int n = int(least(kGroup, p.rows - row));
    F total[T];
    float_tile<W, T>(p.weight + size_t(g) * group_bytes(W, p.width), p.width, p.x + t * p.x_stride, p.x_stride, total);
#pragma GCC unroll 8
    for (int i = 0; i < T; i++) {
        total[i] = settle(total[i]);
        if (p.bias) total[i] = settle(total[i] + load_partial(p.bias + row, n));
        store_partial(p.y + (t + i) * p.y_stride + row, total[i], n);
    }
}

template <Format W>
void multiply_floats_as(const FloatProduct& p, Worker& worker) {
    const int64_t groups = (p.rows + kGroup - 1) / kGroup, piece = most(1, groups / (worker.count * 8));
    int64_t first, last;
    while (worker.claim(groups, piece, first, last))
        for (int64_t g = first; g < last; g++) {
            int64_t t = 0;
            for (; t + kTile <= p.tokens; t += kTile) float_tokens<W, kTile>(p, g, t);
            for (; kTile > 4 && t + 4 <= p.tokens; t += 4) float_tokens<W, 4>(p, g, t);
            for (; t < p.tokens; t++) float_tokens<W, 1>(p, g, t);
        }
}

inline void multiply_floats(const FloatProduct& p, Worker& worker) {
    if (p.tokens == 0) return;
    if (p.format == Format::f32) multiply_floats_as<Format::f32>(p, worker);
    else if (p.format == Format::f16) multiply_floats_as<Format::f16>(p, worker);
    else multiply_floats_as<Format::bf16>(p, worker);
}

}  // namespace samebits::SAMEBITS_ISA
