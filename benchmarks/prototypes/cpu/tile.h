// The attention orders as SIMD templates over a tile: sum over i of a(r, i) * b(c, i), for R scalars and C vectors.
// Products of 16-bit values are exact in float32, so fma(a, b, acc) equals acc + a*b.
#pragma once
#include "common.h"
#include "orders.h"

template <int R, int C>
struct Tile {
    __m512 v[R][C];
};

template <int R, int C>
INLINE Tile<R, C> zero_tile() {
    Tile<R, C> t;
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) t.v[r][c] = _mm512_setzero_ps();
    return t;
}

template <int R, int C>
INLINE void add(Tile<R, C>& x, const Tile<R, C>& y) {
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) x.v[r][c] = _mm512_add_ps(x.v[r][c], y.v[r][c]);
}

template <bool First, int R, int C, class A, class B>
INLINE void step(Tile<R, C>& t, A a, B b, int i) {  // First: the bare product, with no +0 to start from
    __m512 col[C];
#pragma GCC unroll 16
    for (int c = 0; c < C; c++) col[c] = b(c, i);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        __m512 row = _mm512_set1_ps(a(r, i));
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) t.v[r][c] = First ? _mm512_mul_ps(row, col[c]) : _mm512_fmadd_ps(row, col[c], t.v[r][c]);
    }
}

template <int R, int C, int Count, int Step, class A, class B>
INLINE Tile<R, C> chain_tile(A a, B b, int start) {
    Tile<R, C> t = zero_tile<R, C>();
#pragma GCC unroll 16
    for (int k = 0; k < Count; k++) step<false>(t, a, b, start + k * Step);
    return t;
}

struct Chain {
    static constexpr Sum sum = ::chain;
    template <int R, int C, int N, class A, class B>
    static INLINE Tile<R, C> run(A a, B b) {
        return chain_tile<R, C, N, 1>(a, b, 0);
    }
};

template <int Size, Sum Order>
struct Blocks {
    static constexpr Sum sum = Order;
    template <int R, int C, int N, class A, class B>
    static INLINE Tile<R, C> run(A a, B b) {
        Tile<R, C> total = zero_tile<R, C>();
        for (int i = 0; i < N; i += Size) add(total, chain_tile<R, C, Size, 1>(a, b, i));
        return total;
    }
};
using Blocks8 = Blocks<8, blocks8>;
using Runs16 = Blocks<16, runs16>;

struct Slots16 {
    static constexpr Sum sum = slots16;
    template <int R, int C, int N, class A, class B>
    static INLINE Tile<R, C> run(A a, B b) {
        Tile<R, C> total = zero_tile<R, C>();
        for (int j = 0; j < 16; j++) add(total, chain_tile<R, C, N / 16, 16>(a, b, j));
        return total;
    }
};

template <int Leaf, int Sub, Sum Order>  // leaves of 2 terms (a plain pair tree) or chains of Leaf terms
struct Tree {
    static constexpr Sum sum = Order;
    template <int R, int C, int N, class A, class B>
    static INLINE Tile<R, C> subtree(A a, B b, int start) {  // unrolled: the pending left halves stay in registers
        if constexpr (N > Leaf) {
            Tile<R, C> left = subtree<R, C, N / 2>(a, b, start);
            add(left, subtree<R, C, N / 2>(a, b, start + N / 2));
            return left;
        } else if constexpr (Leaf == 2) {
            Tile<R, C> t;
            step<true>(t, a, b, start);
            step<false>(t, a, b, start + 1);
            return t;
        } else {
            return chain_tile<R, C, Leaf, 1>(a, b, start);
        }
    }
    template <int R, int C, int N, class A, class B>
    static INLINE Tile<R, C> run(A a, B b) {
        constexpr int count = N / Sub;  // larger subtrees spill more than the counter stores
        Tile<R, C> pending[8];          // a binary counter of finished subtrees
        for (int i = 0;; i++) {
            Tile<R, C> s = subtree<R, C, Sub>(a, b, Sub * i);
            int level = 0;
            for (; i >> level & 1; level++) add(s, pending[level]);
            if (i == count - 1) return s;
            pending[level] = s;
        }
    }
};
using PairTree = Tree<2, 8, pair_tree>;
template <int Sub>
using BlockTree8 = Tree<8, Sub, block_tree8>;
