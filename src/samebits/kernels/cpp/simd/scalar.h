// Sixteen lanes as plain loops: for any CPU, and what the other paths are read against.
#pragma once
#include <cmath>

#include "half.h"

namespace samebits::SAMEBITS_ISA {

struct F {  // 16 float32
    float v[16];
};
struct I {  // 16 int32
    int32_t v[16];
};
struct B {  // 64 bytes: 4 consecutive k of 16 rows
    uint8_t v[64];
};
struct M {  // one flag a lane
    bool v[16];
};

template <class R, class Fn>
INLINE R lanes(Fn f) {
    R r;
    for (int i = 0; i < 16; i++) r.v[i] = f(i);
    return r;
}

INLINE M first_lanes(int n) { return lanes<M>([=](int i) { return i < n; }); }

INLINE F load(const float* p) { return lanes<F>([=](int i) { return p[i]; }); }
INLINE F load_partial(const float* p, int n) { return lanes<F>([=](int i) { return i < n ? p[i] : 0.0f; }); }
INLINE void store(float* p, F x) {
    for (int i = 0; i < 16; i++) p[i] = x.v[i];
}
INLINE void store_partial(float* p, F x, int n) {
    for (int i = 0; i < (n < 16 ? n : 16); i++) p[i] = x.v[i];
}
INLINE F set(float x) { return lanes<F>([=](int) { return x; }); }
INLINE F zero() { return set(0.0f); }
INLINE float first(F x) { return x.v[0]; }

INLINE F operator+(F a, F b) { return lanes<F>([&](int i) { return a.v[i] + b.v[i]; }); }
INLINE F operator-(F a, F b) { return lanes<F>([&](int i) { return a.v[i] - b.v[i]; }); }
INLINE F operator*(F a, F b) { return lanes<F>([&](int i) { return a.v[i] * b.v[i]; }); }
// a * b + c; only where the product is exact, so that one rounding and two give the same number.
INLINE F fma_exact(F a, F b, F c) { return a * b + c; }
INLINE F abs(F a) { return lanes<F>([&](int i) { return std::fabs(a.v[i]); }); }

INLINE M operator<(F a, F b) { return lanes<M>([&](int i) { return a.v[i] < b.v[i]; }); }
INLINE M operator>(F a, F b) { return lanes<M>([&](int i) { return a.v[i] > b.v[i]; }); }
INLINE M operator<=(F a, F b) { return lanes<M>([&](int i) { return a.v[i] <= b.v[i]; }); }
INLINE M operator>=(F a, F b) { return lanes<M>([&](int i) { return a.v[i] >= b.v[i]; }); }
INLINE M operator==(F a, F b) { return lanes<M>([&](int i) { return a.v[i] == b.v[i]; }); }
INLINE M operator!=(F a, F b) { return lanes<M>([&](int i) { return a.v[i] != b.v[i]; }); }
INLINE M operator&(M a, M b) { return lanes<M>([&](int i) { return a.v[i] && b.v[i]; }); }
INLINE M operator|(M a, M b) { return lanes<M>([&](int i) { return a.v[i] || b.v[i]; }); }
INLINE M operator~(M a) { return lanes<M>([&](int i) { return !a.v[i]; }); }
INLINE bool any(M a) {
    bool found = false;
    for (int i = 0; i < 16; i++) found |= a.v[i];
    return found;
}
INLINE bool all(M a) { return !any(~a); }
INLINE F select(M m, F yes, F no) { return lanes<F>([&](int i) { return m.v[i] ? yes.v[i] : no.v[i]; }); }
INLINE I select(M m, I yes, I no) { return lanes<I>([&](int i) { return m.v[i] ? yes.v[i] : no.v[i]; }); }
// a > b ? a : b, so b where either is NaN.
INLINE F max(F a, F b) { return select(a > b, a, b); }
INLINE F min(F a, F b) { return select(a < b, a, b); }
INLINE float reduce_max(F a) {
    float top = a.v[0];
    for (int i = 1; i < 16; i++) top = a.v[i] > top ? a.v[i] : top;
    return top;
}
INLINE F swap_pairs(F a) { return lanes<F>([&](int i) { return a.v[i ^ 1]; }); }  // lanes 2i and 2i + 1 exchanged

INLINE I bits(F x) {
    I r;
    memcpy(r.v, x.v, 64);
    return r;
}
INLINE F from_bits(I x) {
    F r;
    memcpy(r.v, x.v, 64);
    return r;
}
INLINE I set(int32_t x) { return lanes<I>([=](int) { return x; }); }
INLINE I load(const int32_t* p) { return lanes<I>([=](int i) { return p[i]; }); }
INLINE void store(int32_t* p, I x) {
    for (int i = 0; i < 16; i++) p[i] = x.v[i];
}
// Wrapping, as every vector unit does it.
INLINE I operator+(I a, I b) { return lanes<I>([&](int i) { return int32_t(uint32_t(a.v[i]) + uint32_t(b.v[i])); }); }
INLINE I operator-(I a, I b) { return lanes<I>([&](int i) { return int32_t(uint32_t(a.v[i]) - uint32_t(b.v[i])); }); }
INLINE I operator*(I a, I b) { return lanes<I>([&](int i) { return int32_t(uint32_t(a.v[i]) * uint32_t(b.v[i])); }); }
INLINE I operator&(I a, I b) { return lanes<I>([&](int i) { return a.v[i] & b.v[i]; }); }
INLINE I operator|(I a, I b) { return lanes<I>([&](int i) { return a.v[i] | b.v[i]; }); }
INLINE I operator^(I a, I b) { return lanes<I>([&](int i) { return a.v[i] ^ b.v[i]; }); }
template <int N>
INLINE I shift_left(I a) { return lanes<I>([&](int i) { return int32_t(uint32_t(a.v[i]) << N); }); }
template <int N>
INLINE I shift_right(I a) { return lanes<I>([&](int i) { return a.v[i] >> N; }); }  // keeps the sign
template <int N>
INLINE I shift_right_unsigned(I a) { return lanes<I>([&](int i) { return int32_t(uint32_t(a.v[i]) >> N); }); }
INLINE F to_float(I x) { return lanes<F>([&](int i) { return float(x.v[i]); }); }

// 16-bit types, to nearest even.
INLINE F load_f16(const uint16_t* p) { return lanes<F>([=](int i) { return half_to_float(p[i]); }); }
INLINE void store_f16(uint16_t* p, F x) {
    for (int i = 0; i < 16; i++) p[i] = float_to_half(x.v[i]);
}
INLINE F round_f16(F x) { return lanes<F>([&](int i) { return half_to_float(float_to_half(x.v[i])); }); }
INLINE F load_u16_high(const uint16_t* p) {  // each 16-bit word as the upper half of a lane
    return from_bits(lanes<I>([=](int i) { return int32_t(uint32_t(p[i]) << 16); }));
}
INLINE void store_u16(uint16_t* p, I x) {
    for (int i = 0; i < 16; i++) p[i] = uint16_t(x.v[i]);
}

INLINE I load_i8(const int8_t* p) { return lanes<I>([=](int i) { return int32_t(p[i]); }); }
INLINE I load_u8(const uint8_t* p) { return lanes<I>([=](int i) { return int32_t(p[i]); }); }
INLINE void store_i8(int8_t* p, I x) {
    for (int i = 0; i < 16; i++) p[i] = int8_t(x.v[i]);
}

// Integer dot products: lane r adds the 4 products of row r's bytes with the 4 bytes of x.
INLINE B load_bytes(const void* p) {
    B r;
    memcpy(r.v, p, 64);
    return r;
}
template <class Fn>
INLINE B each_byte(Fn f) {
    B r;
    for (int i = 0; i < 64; i++) r.v[i] = uint8_t(f(i));
    return r;
}
INLINE B set_bytes(int8_t x) { return each_byte([=](int) { return x; }); }
INLINE B operator&(B a, B b) { return each_byte([&](int i) { return a.v[i] & b.v[i]; }); }
INLINE B operator|(B a, B b) { return each_byte([&](int i) { return a.v[i] | b.v[i]; }); }
template <int N>
INLINE B byte_shift_left(B a) { return each_byte([&](int i) { return a.v[i] << N; }); }  // mask first: others cross bytes
template <int N>
INLINE B byte_shift_right(B a) { return each_byte([&](int i) { return a.v[i] >> N; }); }  // mask after, likewise
INLINE B lookup16(const int8_t* table, B index) {  // table[index] for each byte, index 0 .. 15
    return each_byte([&](int i) { return table[index.v[i]]; });
}
INLINE I dot_small(I sum, B w, int32_t x) {  // w 0 .. 127
    int8_t four[4];
    memcpy(four, &x, 4);
    return lanes<I>([&](int i) {
        int total = sum.v[i];
        for (int j = 0; j < 4; j++) total += w.v[4 * i + j] * four[j];
        return total;
    });
}
// w is a signed byte xor 0x80. The sum is that of w as unsigned, which is the signed one + kBias8 * sum of x.
constexpr int kBias8 = 128;
INLINE I dot_8bit(I sum, B w, int32_t x) { return dot_small(sum, w, x); }

INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

}  // namespace samebits::SAMEBITS_ISA
