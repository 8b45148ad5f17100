// P.V of rows of a unit inside one cut of 256 positions: a token's elements in the lanes, weights broadcast.
// Direct: values widened as they are loaded, for few rows. Wide: a run of 16 tokens widened once for all rows.
#pragma once
#include "attention_exp.h"

namespace samebits::SAMEBITS_ISA::attention {

constexpr int kRunsAhead = 2;  // how far values are fetched before they are read

// One cut: weights [rows][stride], where its runs and the next ones lie, and the sums [rows][width] to make.
struct ValueJob {
    const float* weights;
    int64_t stride, row_bytes, width;
    const char* run[kGroupsOfCut + kRunsAhead];
    float* sums;

    const float* weight(int row, int run) const { return weights + row * stride + run * kRun; }
};

// A run as float32 [16][width], and the blocks' scales [blocks][16 tokens] of a quantized one; zeros outside a range.
struct WideRun {
    float *values, *scales;
};

// body(i) for the tokens of a run, from .. to - 1 of 16.
template <class Body>
INLINE void each_token(int from, int to, Body body) {
    if (to - from == kRun) {
#pragma GCC unroll 4
        for (int i = 0; i < kRun; i++) body(i);
    } else {
        for (int i = from; i < to; i++) body(i);
    }
}

// Adds a widened run to the sums of a tile of rows, C vectors of columns from element d on.
template <int C>
INLINE void add_wide_run(const WideRun& wide, const ValueJob& job, const float* weights, int64_t stride, int row,
                         int64_t d) {
    const float* values = wide.values + d;
    const int64_t width = job.width;
    SumTile<kTileRows, C> t;
    clear(t);
    each_token(0, kRun, [&](int i) INLINED {
        step(
            t, [=](int r, int k) INLINED { return weights[r * stride + k]; },
            [=](int c, int k) INLINED { return load(values + k * width + c * 16); }, i);
    });
    float* sums = job.sums + row * width + d;
    each_cell<kTileRows, C>([&](int r, int c) INLINED {
        float* sum = sums + r * width + c * 16;
        store(sum, load(sum) + t.v[r][c]);
    });
}

// Calls f(vectors, element) for all columns of a row, as many vectors at a time as a tile spans.
template <class Fn>
INLINE void each_columns(int64_t width, Fn f) {
    for (int64_t d = 0, n; d < width; d += n * 16)
        with_count<kWideVectors>((width - d) / 16, [&](auto vectors) {
            f(vectors, d);
            n = decltype(vectors)::value;
        });
}

template <class T>
struct Values16 : T {  // f16, bf16
    template <int R, int C>
    static void direct_columns(const ValueJob& job, const CutRange& range, int row, int64_t d) {
        SumTile<R, C> total;
        clear(total);
        for (int run = range.first; run < range.stop; run++) {
            const float* weights = job.weight(row, run);
            const char *now = job.run[run] + d * 2, *ahead = job.run[run + kRunsAhead] + d * 2;
            const int64_t stride = job.stride, row_bytes = job.row_bytes;
            SumTile<R, C> t;
            clear(t);
            each_token(range.run_from(run), range.run_to(run), [&](int i) INLINED {
                step(
                    t, [=](int r, int k) INLINED { return weights[r * stride + k]; },
                    [=](int c, int k) INLINED {
                        if (c % 2 == 0) prefetch(ahead + k * row_bytes + c * 32);
                        return T::load(reinterpret_cast<const uint16_t*>(now + k * row_bytes) + c * 16);
                    },
                    i);
            });
            add(total, t);
        }
        float* sums = job.sums + row * job.width + d;
        each_cell<R, C>([&](int r, int c) INLINED { store(sums + r * job.width + c * 16, total.v[r][c]); });
    }

    template <int R>
    static void direct(const ValueJob& job, const CutRange& range, int row) {
        each_columns(job.width, [&](auto vectors, int64_t d) {
            direct_columns<R, decltype(vectors)::value>(job, range, row, d);
        });
    }

    static void widen(const ValueJob& job, int run, int from, int to, const WideRun& wide) {
        for (int i = 0; i < kRun; i++) {
            const uint16_t* row = reinterpret_cast<const uint16_t*>(job.run[run] + i * job.row_bytes);
            float* values = wide.values + i * job.width;
            if (i < from || i >= to) memset(values, 0, size_t(job.width) * 4);
            else
                for (int64_t d = 0; d < job.width; d += 16) store(values + d, T::load(row + d));
        }
    }

    static void add_run(const WideRun& wide, const ValueJob& job, int row, int run) {
        each_columns(job.width, [&](auto vectors, int64_t d) {
            add_wide_run<decltype(vectors)::value>(wide, job, job.weight(row, run), job.stride, row, d);
        });
    }
};

}  // namespace samebits::SAMEBITS_ISA::attention
