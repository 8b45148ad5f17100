// Sixteen lanes in the compiler's own vectors and plain loops: for any CPU, and what the other paths are read against.
#pragma once
#include "half.h"

namespace samebits::SAMEBITS_ISA {

// Four lanes are what every compiler has registers for, or makes of single numbers.
typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));
typedef uint32_t Word4 __attribute__((vector_size(16)));
typedef uint16_t Word8 __attribute__((vector_size(16)));

struct F {  // 16 float32
    Float4 v[4];
};
struct I {  // 16 int32; unsigned, so that they wrap as in every vector unit
    Word4 v[4];
};
struct B {  // 64 bytes: 4 consecutive k of 16 rows
    Word8 v[4];
};
struct M {  // a lane of ones or of zeros
    Int4 v[4];
};

#define SAMEBITS_EACH(f, a) {{f(a.v[0]), f(a.v[1]), f(a.v[2]), f(a.v[3])}}
#define SAMEBITS_PAIRS(a, op, b) {{a.v[0] op b.v[0], a.v[1] op b.v[1], a.v[2] op b.v[2], a.v[3] op b.v[3]}}
#define SAMEBITS_WITH(a, op, n) {{a.v[0] op n, a.v[1] op n, a.v[2] op n, a.v[3] op n}}

// Long loops stay functions: copies of them would fill the kernels.
#define SAMEBITS_LOOP inline __attribute__((noinline))

// The same bytes as another type.
template <class To, class From>
INLINE To as(From from) {
    static_assert(sizeof(To) == sizeof(From), "a cast keeps the size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

INLINE F load(const float* p) {
    F x;
    memcpy(&x, p, 64);
    return x;
}
INLINE void store(float* p, F x) { memcpy(p, &x, 64); }
INLINE F load_partial(const float* p, int n) {
    if (n >= 16) return load(p);
    float lane[16] = {};
    memcpy(lane, p, size_t(n) * 4);
    return load(lane);
}
INLINE void store_partial(float* p, F x, int n) { memcpy(p, &x, size_t(n < 16 ? n : 16) * 4); }
INLINE F set(float x) {
    const Float4 four = {x, x, x, x};
    return {{four, four, four, four}};
}
INLINE F zero() { return set(0.0f); }
INLINE float first(F x) { return x.v[0][0]; }

INLINE F operator+(F a, F b) { return SAMEBITS_PAIRS(a, +, b); }
INLINE F operator-(F a, F b) { return SAMEBITS_PAIRS(a, -, b); }
INLINE F operator*(F a, F b) { return SAMEBITS_PAIRS(a, *, b); }
// a * b + c; only where the product is exact, so that one rounding and two give the same number.
INLINE F fma_exact(F a, F b, F c) { return a * b + c; }

INLINE M operator<(F a, F b) { return SAMEBITS_PAIRS(a, <, b); }
INLINE M operator>(F a, F b) { return SAMEBITS_PAIRS(a, >, b); }
INLINE M operator<=(F a, F b) { return SAMEBITS_PAIRS(a, <=, b); }
INLINE M operator>=(F a, F b) { return SAMEBITS_PAIRS(a, >=, b); }
INLINE M operator==(F a, F b) { return SAMEBITS_PAIRS(a, ==, b); }
INLINE M operator!=(F a, F b) { return SAMEBITS_PAIRS(a, !=, b); }
INLINE M operator&(M a, M b) { return SAMEBITS_PAIRS(a, &, b); }
INLINE M operator|(M a, M b) { return SAMEBITS_PAIRS(a, |, b); }
INLINE M operator~(M a) { return SAMEBITS_EACH(~, a); }
INLINE M first_lanes(int n) {
    const M lane = {{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}};
    return SAMEBITS_WITH(lane, <, n);
}
INLINE bool any(M a) {
    const Int4 some = (a.v[0] | a.v[1]) | (a.v[2] | a.v[3]);
    return (some[0] | some[1] | some[2] | some[3]) != 0;
}
INLINE bool all(M a) { return !any(~a); }

INLINE I bits(F x) { return as<I>(x); }
INLINE F from_bits(I x) { return as<F>(x); }
INLINE I set(int32_t value) {
    const uint32_t x = uint32_t(value);
    const Word4 four = {x, x, x, x};
    return {{four, four, four, four}};
}
INLINE I load(const int32_t* p) {
    I x;
    memcpy(&x, p, 64);
    return x;
}
INLINE void store(int32_t* p, I x) { memcpy(p, &x, 64); }
INLINE I operator+(I a, I b) { return SAMEBITS_PAIRS(a, +, b); }
INLINE I operator-(I a, I b) { return SAMEBITS_PAIRS(a, -, b); }
INLINE I operator*(I a, I b) { return SAMEBITS_PAIRS(a, *, b); }
INLINE I operator&(I a, I b) { return SAMEBITS_PAIRS(a, &, b); }
INLINE I operator|(I a, I b) { return SAMEBITS_PAIRS(a, |, b); }
INLINE I operator^(I a, I b) { return SAMEBITS_PAIRS(a, ^, b); }
template <int N>
INLINE I shift_left(I a) { return SAMEBITS_WITH(a, <<, N); }
template <int N>
INLINE I shift_right_unsigned(I a) { return SAMEBITS_WITH(a, >>, N); }
template <int N>
INLINE I shift_right(I a) {  // keeps the sign
    const M shifted = as<M>(a);
    const M result = SAMEBITS_WITH(shifted, >>, N);
    return as<I>(result);
}
INLINE F to_float(I x) {
    int32_t lane[16];
    float result[16];
    store(lane, x);
    for (int i = 0; i < 16; i++) result[i] = float(lane[i]);
    return load(result);
}

INLINE I select(M m, I yes, I no) { return (yes & as<I>(m)) | (no & as<I>(~m)); }
INLINE F select(M m, F yes, F no) { return from_bits(select(m, bits(yes), bits(no))); }
INLINE F abs(F a) { return from_bits(bits(a) & set(0x7FFFFFFF)); }
// a > b ? a : b, so b where either is NaN.
INLINE F max(F a, F b) { return select(a > b, a, b); }
INLINE F min(F a, F b) { return select(a < b, a, b); }
INLINE float reduce_max(F a) {
    float lane[16];
    store(lane, a);
    float top = lane[0];
    for (int i = 1; i < 16; i++) top = lane[i] > top ? lane[i] : top;
    return top;
}
INLINE Float4 swap_4(Float4 a) { return Float4{a[1], a[0], a[3], a[2]}; }
INLINE F swap_pairs(F a) { return SAMEBITS_EACH(swap_4, a); }  // lanes 2i and 2i + 1 exchanged

// 16-bit types, to nearest even.
SAMEBITS_LOOP F load_f16(const uint16_t* p) {
    float lane[16];
    for (int i = 0; i < 16; i++) lane[i] = half_to_float(p[i]);
    return load(lane);
}
SAMEBITS_LOOP void store_f16(uint16_t* p, F x) {
    float lane[16];
    store(lane, x);
    for (int i = 0; i < 16; i++) p[i] = float_to_half(lane[i]);
}
INLINE F round_f16(F x) {
    uint16_t half[16];
    store_f16(half, x);
    return load_f16(half);
}
INLINE F load_u16_high(const uint16_t* p) {  // each 16-bit word as the upper half of a lane
    int32_t lane[16];
    for (int i = 0; i < 16; i++) lane[i] = int32_t(uint32_t(p[i]) << 16);
    return from_bits(load(lane));
}
INLINE void store_u16(uint16_t* p, I x) {
    int32_t lane[16];
    store(lane, x);
    for (int i = 0; i < 16; i++) p[i] = uint16_t(lane[i]);
}

INLINE I load_i8(const int8_t* p) {
    int32_t lane[16];
    for (int i = 0; i < 16; i++) lane[i] = p[i];
    return load(lane);
}
INLINE I load_u8(const uint8_t* p) { return load_i8(reinterpret_cast<const int8_t*>(p)) & set(0xFF); }
INLINE void store_i8(int8_t* p, I x) {
    int32_t lane[16];
    store(lane, x);
    for (int i = 0; i < 16; i++) p[i] = int8_t(lane[i]);
}

// Integer dot products: lane r adds the 4 products of row r's bytes with the 4 bytes of x.
INLINE B load_bytes(const void* p) {
    B x;
    memcpy(&x, p, 64);
    return x;
}
INLINE B set_bytes(int8_t x) { return as<B>(set(int32_t(uint8_t(x) * 0x01010101u))); }
INLINE B operator&(B a, B b) { return SAMEBITS_PAIRS(a, &, b); }
INLINE B operator|(B a, B b) { return SAMEBITS_PAIRS(a, |, b); }
// Bits cross into the next byte: mask before a shift to the left and after one to the right.
template <int N>
INLINE B byte_shift_left(B a) { return SAMEBITS_WITH(a, <<, N); }
template <int N>
INLINE B byte_shift_right(B a) { return SAMEBITS_WITH(a, >>, N); }
SAMEBITS_LOOP B lookup16(const int8_t* table, B index) {  // table[index] for each byte, index 0 .. 15
    uint8_t byte[64];
    memcpy(byte, &index, 64);
    for (int i = 0; i < 64; i++) byte[i] = uint8_t(table[byte[i]]);
    return load_bytes(byte);
}
SAMEBITS_LOOP I dot_small(I sum, B w, int32_t x) {  // w 0 .. 127
    uint8_t byte[64];
    int8_t four[4];
    int32_t lane[16];
    memcpy(byte, &w, 64);
    memcpy(four, &x, 4);
    store(lane, sum);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 4; j++) lane[i] += byte[4 * i + j] * four[j];
    return load(lane);
}
// w is a signed byte xor 0x80. The sum is that of w as unsigned, which is the signed one + kBias8 * sum of x.
constexpr int kBias8 = 128;
INLINE I dot_8bit(I sum, B w, int32_t x) { return dot_small(sum, w, x); }
INLINE I dot_biased(I sum, B w, int32_t x) { return dot_small(sum, w, x); }  // w a signed byte + kBias8

constexpr int kRegisters = 4;  // of 16 lanes

// Tokens of a matmul whose sums of 16 rows stay in registers.
constexpr int kTile = 2;

INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

#undef SAMEBITS_EACH
#undef SAMEBITS_PAIRS
#undef SAMEBITS_WITH
#undef SAMEBITS_LOOP

}  // namespace samebits::SAMEBITS_ISA
