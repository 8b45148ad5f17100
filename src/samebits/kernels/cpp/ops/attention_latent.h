// Keys of a latent cache, which lie in rows as they were appended: turned 16 at a time, so that tokens are in the lanes.
// All query heads share them, so that one turn serves many rows.
#pragma once
#include "attention_keys.h"

namespace samebits::SAMEBITS_ISA::attention {

typedef uint16_t Halves __attribute__((vector_size(16)));

INLINE Halves zip_low(Halves a, Halves b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
INLINE Halves zip_high(Halves a, Halves b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }

// Eight elements of eight rows, `stride` bytes apart, to to[element][row], rows of 16. Each round of zips moves one bit
// of an element's row behind those of its column.
INLINE void turn_8x8(const char* rows, int64_t stride, uint16_t* to) {
    Halves a[8], b[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) memcpy(&a[i], rows + i * stride, sizeof a[i]);
#pragma GCC unroll 3
    for (int round = 0; round < 3; round++) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) b[2 * i] = zip_low(a[i], a[i + 4]), b[2 * i + 1] = zip_high(a[i], a[i + 4]);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) a[i] = b[i];
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) memcpy(to + i * kGroupTokens, &a[i], sizeof a[i]);
}

template <class T>
struct RowKeys16 : Keys16<T> {  // f16, bf16
    static void widen_group(const char* rows, int64_t size, float* to) {
        const int64_t stride = size * 2;
        for (int64_t d = 0; d < size; d += 8) {
            alignas(64) uint16_t turned[8 * kGroupTokens];
            for (int half = 0; half < 2; half++) turn_8x8(rows + half * 8 * stride + d * 2, stride, turned + half * 8);
            for (int i = 0; i < 8; i++) store(to + (d + i) * kGroupTokens, T::load(turned + i * kGroupTokens));
        }
    }
};

// However few rows there are: keys must be turned anyway.
template <class T>
INLINE void all_scores(RowKeys16<T>, ScoreSink& s, const QueryRows& q, float* wide, int64_t first, int64_t stop) {
    wide_scores<RowKeys16<T>>(s, q, wide, first, stop);
}

}  // namespace samebits::SAMEBITS_ISA::attention
