// P.V on q8_0 values: the weight of a token is float16(p * scale) for each block of 32, its products with codes exact.
#pragma once
#include "attention_values.h"

namespace samebits::SAMEBITS_ISA::attention {

struct ValuesQ8 : StoredQ8 {
    static constexpr int kBlockVectors = kBlock / 16;

    static INLINE F codes(const char* row, int64_t b, int half) {
        return to_float(load_i8(reinterpret_cast<const int8_t*>(row + b * kBlockQ8Bytes + 2 + half * 16)));
    }

    // Weights [R][16] of a run for one block.
    template <int R>
    static INLINE void block_weights(const ValueJob& job, int row, int run, F scale, float* to) {
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) store(to + r * kRun, round_f16(load(job.weight(row + r, run)) * scale));
    }

    // `Blocks` blocks from b on, so that enough sums are in flight.
    template <int R, int Blocks>
    static void direct_blocks(const ValueJob& job, const CutRange& range, int row, int64_t b) {
        SumTile<R, kBlockVectors> total[Blocks];
        for (auto& t : total) clear(t);
        for (int run = range.first; run < range.stop; run++) {
            const char *now = job.run[run] + b * kBlockQ8Bytes, *ahead = job.run[run + kRunsAhead] + b * kBlockQ8Bytes;
            const int64_t row_bytes = job.row_bytes;
            alignas(64) float weights[Blocks][R * kRun];
            SumTile<R, kBlockVectors> t[Blocks];
#pragma GCC unroll 2
            for (int j = 0; j < Blocks; j++) {
                block_weights<R>(job, row, run, gather_f16(now + j * kBlockQ8Bytes, int(row_bytes)), weights[j]);
                clear(t[j]);
            }
            each_token(range.run_from(run), range.run_to(run), [&](int i) INLINED {
                prefetch(ahead + i * row_bytes);
#pragma GCC unroll 2
                for (int j = 0; j < Blocks; j++)
                    step(
                        t[j], [&](int r, int k) INLINED { return weights[j][r * kRun + k]; },
                        [=](int c, int k) INLINED { return codes(now + k * row_bytes, j, c); }, i);
            });
#pragma GCC unroll 2
            for (int j = 0; j < Blocks; j++) add(total[j], t[j]);
        }
#pragma GCC unroll 2
        for (int j = 0; j < Blocks; j++) {
            float* sums = job.sums + row * job.width + (b + j) * kBlock;
            each_cell<R, kBlockVectors>(
                [&](int r, int c) INLINED { store(sums + r * job.width + c * 16, total[j].v[r][c]); });
        }
    }

    template <int R>
    static void direct(const ValueJob& job, const CutRange& range, int row) {
        const int64_t num_blocks = job.width / kBlock;
        int64_t b = 0;
        for (; b + 2 <= num_blocks; b += 2) direct_blocks<R, 2>(job, range, row, b);
        if (b < num_blocks) direct_blocks<R, 1>(job, range, row, b);
    }

    static void widen(const ValueJob& job, int run, int from, int to, const WideRun& wide) {
        for (int64_t b = 0; b < job.width / kBlock; b++) {
            float* scales = wide.scales + b * kRun;
            store(scales, gather_f16(job.run[run] + b * kBlockQ8Bytes, int(job.row_bytes)));
            for (int i = 0; i < kRun; i++) {
                const bool counts = i >= from && i < to;
                if (!counts) scales[i] = 0;
                for (int half = 0; half < kBlockVectors; half++)
                    store(wide.values + i * job.width + b * kBlock + half * 16,
                          counts ? codes(job.run[run] + i * job.row_bytes, b, half) : zero());
            }
        }
    }

    static void add_run(const WideRun& wide, const ValueJob& job, int row, int run) {
        constexpr int C = kWideVectors < kBlockVectors ? kWideVectors : kBlockVectors;
        for (int64_t b = 0; b < job.width / kBlock; b++) {
            alignas(64) float weights[kTileRows * kRun];
            block_weights<kTileRows>(job, row, run, load(wide.scales + b * kRun), weights);
            for (int c = 0; c < kBlockVectors; c += C)
                add_wide_run<C>(wide, job, weights, kRun, row, b * kBlock + c * 16);
        }
    }
};

}  // namespace samebits::SAMEBITS_ISA::attention
