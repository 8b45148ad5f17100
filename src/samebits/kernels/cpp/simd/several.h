// Several vectors that go through a long chain of operations together: one after another, each operation would wait for
// the one before it. Every element is computed as in a vector alone.
#pragma once
#include "simd.h"

namespace samebits::SAMEBITS_ISA {

template <class T, int N>
struct Several {
    T v[N];
};

// Four registers at a time, which were measured on AVX-512 and AVX2; more gain little there.
constexpr int kSeveral = 4 / kRegisters;

// f(i) for each of them.
template <int N, class Fn>
INLINE auto each_of(Fn f) {
    Several<decltype(f(0)), N> result;
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) result.v[i] = f(i);
    return result;
}
#define SAMEBITS_EACH_OF(e) each_of<N>([&](int i) __attribute__((always_inline)) { return e; })

// Number i, or the one vector that goes with all of them.
template <class T, int N>
INLINE T one_of(const Several<T, N>& x, int i) { return x.v[i]; }
INLINE F one_of(F x, int) { return x; }

#define SAMEBITS_OPERATOR(op) \
    template <class T, int N> \
    INLINE auto operator op(const Several<T, N>& a, const Several<T, N>& b) { return SAMEBITS_EACH_OF(a.v[i] op b.v[i]); } \
    template <class T, int N> \
    INLINE auto operator op(const Several<T, N>& a, T b) { return SAMEBITS_EACH_OF(a.v[i] op b); } \
    template <class T, int N> \
    INLINE auto operator op(T a, const Several<T, N>& b) { return SAMEBITS_EACH_OF(a op b.v[i]); }
#define SAMEBITS_FUNCTION(f) \
    template <class T, int N> \
    INLINE auto f(const Several<T, N>& a) { return SAMEBITS_EACH_OF(f(a.v[i])); }
#define SAMEBITS_FUNCTION2(f) \
    template <int N> \
    INLINE auto f(const Several<F, N>& a, F b) { return SAMEBITS_EACH_OF(f(a.v[i], b)); } \
    template <int N> \
    INLINE auto f(F a, const Several<F, N>& b) { return SAMEBITS_EACH_OF(f(a, b.v[i])); }

SAMEBITS_OPERATOR(+)
SAMEBITS_OPERATOR(-)
SAMEBITS_OPERATOR(*)
SAMEBITS_OPERATOR(<)
SAMEBITS_OPERATOR(>)
SAMEBITS_OPERATOR(<=)
SAMEBITS_FUNCTION(bits)
SAMEBITS_FUNCTION(from_bits)
SAMEBITS_FUNCTION(abs)
SAMEBITS_FUNCTION(settle)
SAMEBITS_FUNCTION2(max)
SAMEBITS_FUNCTION2(min)
template <int Bits, int N>
INLINE auto shift_left(const Several<I, N>& a) { return SAMEBITS_EACH_OF(shift_left<Bits>(a.v[i])); }
template <int N>
INLINE auto fma_exact(const Several<F, N>& a, F b, const Several<F, N>& c) { return SAMEBITS_EACH_OF(fma_exact(a.v[i], b, c.v[i])); }
template <int N, class Yes, class No>
INLINE auto select(const Several<M, N>& m, const Yes& yes, const No& no) {
    return SAMEBITS_EACH_OF(select(m.v[i], one_of(yes, i), one_of(no, i)));
}

template <int N>
INLINE Several<F, N> load_several(const float* p) { return SAMEBITS_EACH_OF(load(p + 16 * i)); }
template <int N>
INLINE void store(float* p, const Several<F, N>& x) {
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) store(p + 16 * i, x.v[i]);
}

#undef SAMEBITS_EACH_OF
#undef SAMEBITS_OPERATOR
#undef SAMEBITS_FUNCTION
#undef SAMEBITS_FUNCTION2

}  // namespace samebits::SAMEBITS_ISA
