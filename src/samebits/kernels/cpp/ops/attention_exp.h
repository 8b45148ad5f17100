// From scores to weights: exponentials below the maximum, and their sum in stream order.
#pragma once
#include "attention_unit.h"

namespace samebits::SAMEBITS_ISA::attention {

// Weights exp(s - top) of up to 16 rows from `start` on in one cut, in place, rounded as V's type wants them.
// cut_sum [rows] gets the sums of the unrounded ones in stream order: runs of all rows queue up for 16 chains at once.
template <class V>
INLINE void exp_batch(const Unit& u, ScoreArea area, const float* top, int64_t cut, int start, float* cut_sum) {
    alignas(64) float p[16 * kCut], run_sums[17 * kGroupsOfCut], rows[16 * kGroupsOfCut] = {};
    const int count = int(least(16, u.num_rows - start));
    int num_runs = 0;
    for (int row = start; row < start + count; row++) {
        const CutRange range = u.tile_range(row / kTileRows * kTileRows, cut);
        float* s = area.at(row, cut * kCut - u.origin());
        const float shift = top[row] == -kInfinity ? 0.0f : top[row];  // all its scores are -Inf
        for (int g = range.first; g < range.stop; g++, num_runs++) {
            const F x = exp_not_positive(load(s + g * kGroupTokens) - set(shift));
            store(p + num_runs * kGroupTokens, x);
            store(s + g * kGroupTokens, V::round(x));
        }
    }
    for (int i = num_runs; i % 16; i++) store(p + i * kGroupTokens, zero());
    for (int i = 0; i < num_runs; i += 16) store(run_sums + i, row_chains(p + i * kGroupTokens));
    const float* next = run_sums;
    for (int r = 0; r < count; r++) {
        const CutRange range = u.tile_range((start + r) / kTileRows * kTileRows, cut);
        store(rows + r * kGroupsOfCut, load_partial(next, range.stop - range.first));
        next += range.stop - range.first;
    }
    store_partial(cut_sum + start, row_chains(rows), count);
}

template <class V>
void exp_rows(const Unit& u, ScoreArea area, const float* top, int64_t cut, float* cut_sum) {
    for (int start = 0; start < u.num_rows; start += 16) exp_batch<V>(u, area, top, cut, start, cut_sum);
}

}  // namespace samebits::SAMEBITS_ISA::attention
