// The canonical order of sums over a row (docs/numerics.md, section 3). The other orders live in the kernels that
// need them: block in gemm_q8.h, stream in gemm_float.h and attention, head in attention.
#pragma once
#include "base.h"

namespace samebits::SAMEBITS_ISA {

constexpr int kCut = 256, kRun = 16, kHeadRun = 8, kChunkBlocks = 8, kBlock = 32;

// Sum over i of term(i .. i + 15, lanes in use) in row order: cuts of 256, 16 slots, slots in order, cuts in order.
// term(i, n) returns 16 lanes, +0 from lane n on.
template <class Term>
INLINE float row_sum(int64_t width, Term term) {
    float total = 0;
    for (int64_t cut = 0; cut < width; cut += kCut) {
        const int64_t stop = least(cut + kCut, width);
        F slots = zero();
        int64_t i = cut;
        for (; i + 16 <= stop; i += 16) slots = slots + term(i, 16);
        if (i < stop) slots = slots + term(i, int(stop - i));
        total += chain(slots);
    }
    return total;
}

}  // namespace samebits::SAMEBITS_ISA
