// What becomes of a product's results: rows of y with a bias, or gated rows in int8 blocks.
#pragma once
#include "activation.h"
#include "gemm_q8.h"
#include "quantize.h"

namespace samebits::SAMEBITS_ISA {

// A target for `finish`: rows of y, and a bias that is added last.
struct PlainResult {
    const Tensor& y;
    const Tensor* bias;  // or null
    const BlockProduct& product;

    // Sets the product up to leave its results here, and to leave nothing to do where that is possible.
    void take(BlockProduct& p) {
        p.target = this, p.finish = finish;
        if (!bias && y.format == Format::f32 && p.rows % kGroup == 0) p.y = y.as<float>(), p.y_stride = y.stride[0] / 4;
    }

    static void finish(void* target, int64_t unit, const Part& part, const float* results) {
        const PlainResult& to = *static_cast<PlainResult*>(target);
        const BlockProduct& p = to.product;
        for (int i = 0; i < p.unit_groups; i++) {
            const int64_t row = p.group(unit, i) * kGroup;
            if (row >= p.rows) break;
            const int n = int(least(kGroup, p.rows - row));
            const F added = to.bias ? load_lanes(*to.bias, p.segments.matrix(part.segment), row, n) : zero();
            for (int64_t t = 0; t < part.tokens; t++) {
                F x = load(results + t * kUnitRows + i * kGroup);
                if (to.bias) x = settle(x + added);
                store_lanes(to.y, p.segments.y_row(part.first + t), row, x, n);
            }
        }
    }
};

// Another: the rows are gate and up projections; act(gate, up) goes out in int8 blocks, one of them a unit.
template <class Act>
struct GatedResult {
    const Tensor &codes, &scales;
    const Tensor* bias;  // or null
    const BlockProduct& product;
    Act act;
    bool refused = false;

    void take(BlockProduct& p) { p.gated = true, p.target = this, p.finish = finish; }

    // Vectors first .. first + N - 1 of some tokens, of which each has two, into x [tokens][32].
    template <int N>
    INLINE void activate(const float* results, const F (&added)[kUnitGroups], int first, float* x) const {
        Several<F, N> gate, up;
#pragma GCC unroll 4
        for (int n = 0; n < N; n++) {
            const int t = (first + n) / 2, j = (first + n) % 2;
            const float* row = results + t * kUnitRows + j * kGroup;
            gate.v[n] = load(row), up.v[n] = load(row + kBlock);
            if (bias) gate.v[n] = settle(gate.v[n] + added[j]), up.v[n] = settle(up.v[n] + added[2 + j]);
        }
        store(x + first * kGroup, act(gate, up));
    }

    static void finish(void* target, int64_t unit, const Part& part, const float* results) {
        GatedResult& to = *static_cast<GatedResult*>(target);
        const Segments& segments = to.product.segments;
        constexpr int kBatch = 16;  // tokens whose blocks are quantized together
        alignas(64) float x[kBatch * kBlock], scales[kBatch];
        int8_t codes[kBatch * kBlock];
        F added[kUnitGroups];
        for (int i = 0; i < kUnitGroups && to.bias; i++)
            added[i] = load_lanes(*to.bias, segments.matrix(part.segment), to.product.group(unit, i) * kGroup, kGroup);
        for (int64_t t = 0; t < part.tokens; t += kBatch) {
            const int count = int(least(kBatch, part.tokens - t));
            int i = 0;  // of vectors, two of a token
            for (; i + kSeveral <= 2 * count; i += kSeveral) to.activate<kSeveral>(results + t * kUnitRows, added, i, x);
            for (; i < 2 * count; i++) to.activate<1>(results + t * kUnitRows, added, i, x);
            to.refused |= !quantize_blocks(x, count, codes, scales);
            for (int i = 0; i < count; i++) {
                const int64_t r = segments.y_row(part.first + t + i);
                memcpy(to.codes.row(r) + unit * kBlock, codes + i * kBlock, kBlock);
                memcpy(to.scales.row(r) + unit * 4, scales + i, 4);
            }
        }
    }
};

}  // namespace samebits::SAMEBITS_ISA
