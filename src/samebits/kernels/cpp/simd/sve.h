// Sixteen lanes in two registers: aarch64 SVE with vectors of 256 bits, neither more nor less, and its int8 products.
#pragma once
#include <arm_sve.h>

namespace samebits::SAMEBITS_ISA {

#define SAMEBITS_FIXED __attribute__((arm_sve_vector_bits(256)))
typedef svfloat32_t FloatPart SAMEBITS_FIXED;
typedef svint32_t IntPart SAMEBITS_FIXED;
typedef svuint8_t BytePart SAMEBITS_FIXED;
typedef svbool_t MaskPart SAMEBITS_FIXED;
#undef SAMEBITS_FIXED

struct F {  // 16 float32
    FloatPart v[2];
};
struct I {  // 16 int32
    IntPart v[2];
};
struct B {  // 64 bytes: 4 consecutive k of 16 rows
    BytePart v[2];
};
struct M {  // of the four bits that a predicate has for a lane, the lowest says it and the others are zero
    MaskPart v[2];
};

// One instruction on both registers, on all of their lanes.
#define SAMEBITS_ALL svptrue_b32()
#define SAMEBITS_SAME(e) {{e, e}}
#define SAMEBITS_READ(f, p) {{f(SAMEBITS_ALL, p), f(SAMEBITS_ALL, p + 8)}}
#define SAMEBITS_WRITE(f, p, x) f(SAMEBITS_ALL, p, x.v[0]), f(SAMEBITS_ALL, p + 8, x.v[1])
#define SAMEBITS_EACH(f, a) {{f(SAMEBITS_ALL, a.v[0]), f(SAMEBITS_ALL, a.v[1])}}
#define SAMEBITS_EACH2(f, a, b) {{f(SAMEBITS_ALL, a.v[0], b.v[0]), f(SAMEBITS_ALL, a.v[1], b.v[1])}}
#define SAMEBITS_EACH3(f, a, b, c) {{f(SAMEBITS_ALL, a.v[0], b.v[0], c.v[0]), f(SAMEBITS_ALL, a.v[1], b.v[1], c.v[1])}}
#define SAMEBITS_WITH(f, a, n) {{f(SAMEBITS_ALL, a.v[0], n), f(SAMEBITS_ALL, a.v[1], n)}}
#define SAMEBITS_CAST(f, a) {{f(a.v[0]), f(a.v[1])}}

INLINE M first_lanes(int n) { return {{svwhilelt_b32_s32(0, n), svwhilelt_b32_s32(8, n)}}; }

INLINE F load(const float* p) { return SAMEBITS_READ(svld1_f32, p); }
INLINE void store(float* p, F x) { SAMEBITS_WRITE(svst1_f32, p, x); }
INLINE F load_partial(const float* p, int n) {  // the lanes beyond are zero
    const M m = first_lanes(n);
    return {{svld1_f32(m.v[0], p), svld1_f32(m.v[1], p + 8)}};
}
INLINE void store_partial(float* p, F x, int n) {
    const M m = first_lanes(n);
    svst1_f32(m.v[0], p, x.v[0]);
    svst1_f32(m.v[1], p + 8, x.v[1]);
}
INLINE F set(float x) { return SAMEBITS_SAME(svdup_n_f32(x)); }
INLINE F zero() { return set(0.0f); }
INLINE float first(F x) { return svlasta_f32(svpfalse_b(), x.v[0]); }

INLINE F operator+(F a, F b) { return SAMEBITS_EACH2(svadd_f32_x, a, b); }
INLINE F operator-(F a, F b) { return SAMEBITS_EACH2(svsub_f32_x, a, b); }
INLINE F operator*(F a, F b) { return SAMEBITS_EACH2(svmul_f32_x, a, b); }
// a * b + c; only where the product is exact, so that one rounding and two give the same number.
INLINE F fma_exact(F a, F b, F c) { return SAMEBITS_EACH3(svmla_f32_x, c, a, b); }
INLINE F abs(F a) { return SAMEBITS_EACH(svabs_f32_x, a); }

INLINE M operator<(F a, F b) { return SAMEBITS_EACH2(svcmplt_f32, a, b); }
INLINE M operator>(F a, F b) { return SAMEBITS_EACH2(svcmpgt_f32, a, b); }
INLINE M operator<=(F a, F b) { return SAMEBITS_EACH2(svcmple_f32, a, b); }
INLINE M operator>=(F a, F b) { return SAMEBITS_EACH2(svcmpge_f32, a, b); }
INLINE M operator==(F a, F b) { return SAMEBITS_EACH2(svcmpeq_f32, a, b); }
INLINE M operator!=(F a, F b) { return SAMEBITS_EACH2(svcmpne_f32, a, b); }  // true of a NaN
INLINE M operator&(M a, M b) { return SAMEBITS_EACH2(svand_b_z, a, b); }
INLINE M operator|(M a, M b) { return SAMEBITS_EACH2(svorr_b_z, a, b); }
INLINE M operator~(M a) { return SAMEBITS_EACH(svnot_b_z, a); }
INLINE bool any(M a) { return svptest_any(SAMEBITS_ALL, svorr_b_z(SAMEBITS_ALL, a.v[0], a.v[1])); }
INLINE bool all(M a) { return !svptest_any(SAMEBITS_ALL, svnand_b_z(SAMEBITS_ALL, a.v[0], a.v[1])); }
INLINE F select(M m, F yes, F no) {
    return {{svsel_f32(m.v[0], yes.v[0], no.v[0]), svsel_f32(m.v[1], yes.v[1], no.v[1])}};
}
INLINE I select(M m, I yes, I no) {
    return {{svsel_s32(m.v[0], yes.v[0], no.v[0]), svsel_s32(m.v[1], yes.v[1], no.v[1])}};
}
// a > b ? a : b, so b where either is NaN; the unit's own maximum is another function.
INLINE F max(F a, F b) { return select(a > b, a, b); }
INLINE F min(F a, F b) { return select(a < b, a, b); }
INLINE float reduce_max(F a) { return svmaxv_f32(SAMEBITS_ALL, svmax_f32_x(SAMEBITS_ALL, a.v[0], a.v[1])); }

INLINE I bits(F x) { return SAMEBITS_CAST(svreinterpret_s32_f32, x); }
INLINE F from_bits(I x) { return SAMEBITS_CAST(svreinterpret_f32_s32, x); }
INLINE FloatPart swap_8(FloatPart a) {
    return svreinterpret_f32_u64(svrevw_u64_x(svptrue_b64(), svreinterpret_u64_f32(a)));
}
INLINE F swap_pairs(F a) { return SAMEBITS_CAST(swap_8, a); }  // lanes 2i and 2i + 1 exchanged
INLINE I set(int32_t x) { return SAMEBITS_SAME(svdup_n_s32(x)); }
INLINE I load(const int32_t* p) { return SAMEBITS_READ(svld1_s32, p); }
INLINE void store(int32_t* p, I x) { SAMEBITS_WRITE(svst1_s32, p, x); }
INLINE I operator+(I a, I b) { return SAMEBITS_EACH2(svadd_s32_x, a, b); }
INLINE I operator-(I a, I b) { return SAMEBITS_EACH2(svsub_s32_x, a, b); }
INLINE I operator*(I a, I b) { return SAMEBITS_EACH2(svmul_s32_x, a, b); }
INLINE I operator&(I a, I b) { return SAMEBITS_EACH2(svand_s32_x, a, b); }
INLINE I operator|(I a, I b) { return SAMEBITS_EACH2(svorr_s32_x, a, b); }
INLINE I operator^(I a, I b) { return SAMEBITS_EACH2(sveor_s32_x, a, b); }
template <int N>
INLINE I shift_left(I a) { return SAMEBITS_WITH(svlsl_n_s32_x, a, N); }
template <int N>
INLINE I shift_right(I a) { return SAMEBITS_WITH(svasr_n_s32_x, a, N); }  // keeps the sign
template <int N>
INLINE IntPart shift_8(IntPart a) {
    return svreinterpret_s32_u32(svlsr_n_u32_x(SAMEBITS_ALL, svreinterpret_u32_s32(a), N));
}
template <int N>
INLINE I shift_right_unsigned(I a) { return SAMEBITS_CAST(shift_8<N>, a); }
INLINE F to_float(I x) { return SAMEBITS_EACH(svcvt_f32_s32_x, x); }

// 16-bit types, to nearest even. A lane has its number in the lower half, as loads and stores of half words have it.
INLINE FloatPart widen_8_f16(svuint32_t x) { return svcvt_f32_f16_x(SAMEBITS_ALL, svreinterpret_f16_u32(x)); }
INLINE svuint32_t narrow_8_f16(FloatPart x) { return svreinterpret_u32_f16(svcvt_f16_f32_x(SAMEBITS_ALL, x)); }
INLINE F load_f16(const uint16_t* p) {
    return {{widen_8_f16(svld1uh_u32(SAMEBITS_ALL, p)), widen_8_f16(svld1uh_u32(SAMEBITS_ALL, p + 8))}};
}
INLINE void store_f16(uint16_t* p, F x) {
    svst1h_u32(SAMEBITS_ALL, p, narrow_8_f16(x.v[0]));
    svst1h_u32(SAMEBITS_ALL, p + 8, narrow_8_f16(x.v[1]));
}
INLINE FloatPart round_8_f16(FloatPart x) { return widen_8_f16(narrow_8_f16(x)); }
INLINE F round_f16(F x) { return SAMEBITS_CAST(round_8_f16, x); }
INLINE F load_u16_high(const uint16_t* p) {  // each 16-bit word as the upper half of a lane
    const I low = SAMEBITS_READ(svld1uh_s32, p);
    return from_bits(shift_left<16>(low));
}
INLINE void store_u16(uint16_t* p, I x) {
    int16_t* words = reinterpret_cast<int16_t*>(p);
    SAMEBITS_WRITE(svst1h_s32, words, x);
}

INLINE I load_i8(const int8_t* p) { return SAMEBITS_READ(svld1sb_s32, p); }
INLINE I load_u8(const uint8_t* p) { return SAMEBITS_READ(svld1ub_s32, p); }
INLINE void store_i8(int8_t* p, I x) { SAMEBITS_WRITE(svst1b_s32, p, x); }

// Integer dot products: lane r adds the 4 products of row r's bytes with the 4 bytes of x.
#undef SAMEBITS_ALL
#define SAMEBITS_ALL svptrue_b8()
INLINE B load_bytes(const void* p) {
    const uint8_t* byte = static_cast<const uint8_t*>(p);
    return {{svld1_u8(SAMEBITS_ALL, byte), svld1_u8(SAMEBITS_ALL, byte + 32)}};
}
INLINE B set_bytes(int8_t x) { return SAMEBITS_SAME(svdup_n_u8(uint8_t(x))); }
INLINE B operator&(B a, B b) { return SAMEBITS_EACH2(svand_u8_x, a, b); }
INLINE B operator|(B a, B b) { return SAMEBITS_EACH2(svorr_u8_x, a, b); }
#define SAMEBITS_SHIFTS_BYTES  // on sets without it bits cross into the next byte
template <int N>
INLINE B byte_shift_left(B a) { return SAMEBITS_WITH(svlsl_n_u8_x, a, N); }
template <int N>
INLINE B byte_shift_right(B a) { return SAMEBITS_WITH(svlsr_n_u8_x, a, N); }
INLINE B flip_signs(B a) { return SAMEBITS_WITH(sveor_n_u8_x, a, 0x80); }
INLINE B lookup16(const int8_t* table, B index) {  // table[index] for each byte, index 0 .. 15
    const svuint8_t t = svreinterpret_u8_s8(svld1rq_s8(SAMEBITS_ALL, table));
    return {{svtbl_u8(t, index.v[0]), svtbl_u8(t, index.v[1])}};
}
INLINE I dot_small(I sum, B w, int32_t x) {  // w 0 .. 127, or bytes that are signed
    const svint8_t four = svreinterpret_s8_s32(svdup_n_s32(x));
    return {{svdot_s32(sum.v[0], svreinterpret_s8_u8(w.v[0]), four), svdot_s32(sum.v[1], svreinterpret_s8_u8(w.v[1]), four)}};
}
// w is a signed byte xor 0x80. The unit multiplies signed bytes, so the sum is that of w as signed: no bias.
constexpr int kBias8 = 0;
INLINE I dot_biased(I sum, B w, int32_t x) { return dot_small(sum, w, x); }  // w a signed byte + kBias8
INLINE I dot_8bit(I sum, B w, int32_t x) { return dot_small(sum, flip_signs(w), x); }

// For T tokens at once: four of them lie in each half of a register, from which the unit takes them without a copy. One
// alone is loaded into all lanes, by an instruction that reaches further.
#define SAMEBITS_DOTS_BY_LANE
template <int N>
INLINE void dot_lane(I& sum, B w, svint8_t x) {
    sum.v[0] = svdot_lane_s32(sum.v[0], svreinterpret_s8_u8(w.v[0]), x, N);
    sum.v[1] = svdot_lane_s32(sum.v[1], svreinterpret_s8_u8(w.v[1]), x, N);
}
template <int T>
INLINE void dot_small(I (&sum)[T], B w, const int8_t (*x)[4]) {  // reads 16 bytes of x at least where T is 2
    static_assert(T == 1 || T == 2 || T % 4 == 0, "they fill registers, half of one or a lane");
    if constexpr (T == 1) {
        int32_t four;
        memcpy(&four, x[0], 4);
        sum[0] = dot_small(sum[0], w, four);
    } else {
#pragma GCC unroll 2
        for (int t = 0; t < T; t += 4) {
            const svint8_t tokens = svld1rq_s8(SAMEBITS_ALL, x[t]);
            dot_lane<0>(sum[t], w, tokens), dot_lane<1>(sum[t + 1], w, tokens);
            if constexpr (T >= 4) dot_lane<2>(sum[t + 2], w, tokens), dot_lane<3>(sum[t + 3], w, tokens);
        }
    }
}
template <int T>
INLINE void dot_8bit(I (&sum)[T], B w, const int8_t (*x)[4]) { dot_small<T>(sum, flip_signs(w), x); }
template <int T>
INLINE void dot_biased(I (&sum)[T], B w, const int8_t (*x)[4]) { dot_small<T>(sum, w, x); }

// The matrix instruction for int8, and what its operands are made by: ops/gemm_mmla.h.
#define SAMEBITS_HAS_MMLA 1
INLINE svuint32_t words(BytePart a) { return svreinterpret_u32_u8(a); }
INLINE BytePart zip_low(BytePart a, BytePart b) { return svreinterpret_u8_u32(svzip1_u32(words(a), words(b))); }
INLINE BytePart zip_high(BytePart a, BytePart b) { return svreinterpret_u8_u32(svzip2_u32(words(a), words(b))); }
INLINE BytePart pair_even(BytePart a, BytePart b) { return svreinterpret_u8_u32(svtrn1_u32(words(a), words(b))); }
INLINE BytePart pair_odd(BytePart a, BytePart b) { return svreinterpret_u8_u32(svtrn2_u32(words(a), words(b))); }
INLINE BytePart load_register(const int8_t* p) { return svreinterpret_u8_s8(svld1_s8(SAMEBITS_ALL, p)); }
INLINE void store_register(int8_t* p, BytePart x) { svst1_s8(SAMEBITS_ALL, p, svreinterpret_s8_u8(x)); }
INLINE BytePart load_tokens(const int8_t* p) {  // four, in both halves
    return svreinterpret_u8_s8(svld1rq_s8(SAMEBITS_ALL, p));
}
INLINE IntPart multiply_pairs(IntPart sum, BytePart rows, BytePart tokens) {
    return svmmla_s32(sum, svreinterpret_s8_u8(rows), svreinterpret_s8_u8(tokens));
}
INLINE IntPart unzip_even(IntPart a, IntPart b) { return svuzp1_s32(a, b); }
INLINE IntPart unzip_odd(IntPart a, IntPart b) { return svuzp2_s32(a, b); }

constexpr int kRegisters = 2;  // of 16 lanes

// Tokens of a matmul whose sums of 16 rows stay in registers.
constexpr int kTile = 8;

INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

#undef SAMEBITS_ALL
#undef SAMEBITS_SAME
#undef SAMEBITS_READ
#undef SAMEBITS_WRITE
#undef SAMEBITS_EACH
#undef SAMEBITS_EACH2
#undef SAMEBITS_EACH3
#undef SAMEBITS_WITH
#undef SAMEBITS_CAST

}  // namespace samebits::SAMEBITS_ISA
