// Register tiles of attention: R query rows against C vectors, in head order over D and in stream order over tokens.
// All products here are exact (16-bit operands, or a 16-bit weight and an int8 code), so fma is allowed.
#pragma once
#include "kv_codec.h"

#define INLINED __attribute__((always_inline))  // after the parameters of a lambda

namespace samebits::SAMEBITS_ISA::attention {

constexpr int kTileRows = 4;       // query rows that share what is loaded of keys and values
constexpr int kMaxHeadSize = 576;  // of keys
constexpr int kMaxTreeLevels = 7;  // of the pair tree over 576 / 8 runs
#if defined(SAMEBITS_USE_AVX512)
constexpr int kWideVectors = 4, kDirectVectors = 2;  // vectors a tile spans where operands are float32, or 16-bit
#elif defined(SAMEBITS_USE_SVE)
constexpr int kWideVectors = 2, kDirectVectors = 1;
#else
constexpr int kWideVectors = 1, kDirectVectors = 1;
#endif

template <int R, int C>
struct SumTile {
    F v[R][C];
};

template <int R, int C, class Fn>
INLINE void each_cell(Fn f) {
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int c = 0; c < C; c++) f(r, c);
}

template <int R, int C>
INLINE void clear(SumTile<R, C>& t) {
    each_cell<R, C>([&](int r, int c) INLINED { t.v[r][c] = zero(); });
}

template <int R, int C>
INLINE void add(SumTile<R, C>& t, const SumTile<R, C>& x) {
    each_cell<R, C>([&](int r, int c) INLINED { t.v[r][c] = t.v[r][c] + x.v[r][c]; });
}

// t += left(r, i) * right(c, i).
template <int R, int C, class Left, class Right>
INLINE void step(SumTile<R, C>& t, Left left, Right right, int i) {
    F column[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; c++) column[c] = right(c, i);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
        const F row = set(left(r, i));
#pragma GCC unroll 8
        for (int c = 0; c < C; c++) t.v[r][c] = fma_exact(row, column[c], t.v[r][c]);
    }
}

// `Runs` runs of 8 from element d on, joined by the pair tree.
template <int Runs, int R, int C, class Left, class Right>
INLINE SumTile<R, C> head_runs(Left q, Right k, int d) {
    SumTile<R, C> t;
    clear(t);
#pragma GCC unroll 8
    for (int i = 0; i < kHeadRun; i++) step(t, q, k, d + i);
    if constexpr (Runs == 2) add(t, head_runs<1, R, C>(q, k, d + kHeadRun));
    return t;
}

// Sum over `size` elements in head order, `Runs` runs at a turn. Finished subtrees wait in memory, a binary counter:
// unrolled trees are slower. A subtree that the tree pads with +0 joins as it is.
template <int Runs, int R, int C, class Left, class Right>
INLINE SumTile<R, C> tile_dot(Left q, Right k, int size) {
    SumTile<R, C> waiting[kMaxTreeLevels];
    const int last = size / (Runs * kHeadRun) - 1;
    for (int i = 0;; i++) {
        SumTile<R, C> t = head_runs<Runs, R, C>(q, k, i * Runs * kHeadRun);
        int level = 0;
        if (i == last) {
            for (; i >> level; level++)
                if (i >> level & 1) add(t, waiting[level]);
            return t;
        }
        for (; i >> level & 1; level++) add(t, waiting[level]);
        waiting[level] = t;
    }
}

template <int N>
struct Count {
    static constexpr int value = N;
};

// f(Count<n>), n at least 1, at most `Most`.
template <int Most, class Fn>
INLINE void with_count(int64_t n, Fn f) {
    if constexpr (Most > 1)
        if (n < Most) return with_count<Most - 1>(n, f);
    f(Count<Most>{});
}

// The 16-bit types of a cache: elements as operands of exact products, and numbers rounded to such operands.
struct StoredF16 {
    static INLINE F load(const uint16_t* p) { return load_f16(p); }
    static INLINE F round(F x) { return round_f16(x); }
    static constexpr float largest = __FLT_MAX__;
};
struct StoredBf16 {
    static INLINE F load(const uint16_t* p) { return load_bf16(p); }
    static INLINE F round(F x) { return round_bf16(x); }
    static constexpr float largest = kLargestBf16;
};
struct StoredQ8 {  // blocks of 32; p stays as it is until a block's scale meets it
    static INLINE F round(F x) { return x; }
};

}  // namespace samebits::SAMEBITS_ISA::attention
