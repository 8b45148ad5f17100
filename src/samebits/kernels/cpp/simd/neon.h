// Sixteen lanes in four registers: aarch64 NEON, and its dot product where the compiler is told of it.
#pragma once
#include <arm_neon.h>

namespace samebits::SAMEBITS_ISA {

struct F {  // 16 float32
    float32x4_t v[4];
};
struct I {  // 16 int32
    int32x4_t v[4];
};
struct B {  // 64 bytes: 4 consecutive k of 16 rows
    uint8x16_t v[4];
};
struct M {  // a lane of ones or of zeros
    uint32x4_t v[4];
};

// One instruction on all four registers. Macros, because lambdas take compilers four times as long.
#define SAMEBITS_SAME(e) {{e, e, e, e}}
#define SAMEBITS_READ(f, p, step) {{f(p), f(p + step), f(p + 2 * step), f(p + 3 * step)}}
#define SAMEBITS_EACH(f, a) {{f(a.v[0]), f(a.v[1]), f(a.v[2]), f(a.v[3])}}
#define SAMEBITS_EACH2(f, a, b) {{f(a.v[0], b.v[0]), f(a.v[1], b.v[1]), f(a.v[2], b.v[2]), f(a.v[3], b.v[3])}}
#define SAMEBITS_WITH(f, a, n) {{f(a.v[0], n), f(a.v[1], n), f(a.v[2], n), f(a.v[3], n)}}
#define SAMEBITS_EACH3(f, a, b, c) \
    {{f(a.v[0], b.v[0], c.v[0]), f(a.v[1], b.v[1], c.v[1]), f(a.v[2], b.v[2], c.v[2]), f(a.v[3], b.v[3], c.v[3])}}

INLINE F load(const float* p) { return SAMEBITS_READ(vld1q_f32, p, 4); }
INLINE void store(float* p, F x) {
    for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, x.v[i]);
}
INLINE F load_partial(const float* p, int n) {
    if (n >= 16) return load(p);
    float lane[16] = {};
    memcpy(lane, p, size_t(n) * 4);
    return load(lane);
}
INLINE void store_partial(float* p, F x, int n) {
    if (n >= 16) return store(p, x);
    float lane[16];
    store(lane, x);
    memcpy(p, lane, size_t(n) * 4);
}
INLINE F set(float x) { return SAMEBITS_SAME(vdupq_n_f32(x)); }
INLINE F zero() { return set(0.0f); }
INLINE float first(F x) { return vgetq_lane_f32(x.v[0], 0); }

INLINE F operator+(F a, F b) { return SAMEBITS_EACH2(vaddq_f32, a, b); }
INLINE F operator-(F a, F b) { return SAMEBITS_EACH2(vsubq_f32, a, b); }
INLINE F operator*(F a, F b) { return SAMEBITS_EACH2(vmulq_f32, a, b); }
// a * b + c; only where the product is exact, so that one rounding and two give the same number.
INLINE F fma_exact(F a, F b, F c) { return SAMEBITS_EACH3(vfmaq_f32, c, a, b); }
INLINE F abs(F a) { return SAMEBITS_EACH(vabsq_f32, a); }

INLINE M operator<(F a, F b) { return SAMEBITS_EACH2(vcltq_f32, a, b); }
INLINE M operator>(F a, F b) { return SAMEBITS_EACH2(vcgtq_f32, a, b); }
INLINE M operator<=(F a, F b) { return SAMEBITS_EACH2(vcleq_f32, a, b); }
INLINE M operator>=(F a, F b) { return SAMEBITS_EACH2(vcgeq_f32, a, b); }
INLINE M operator==(F a, F b) { return SAMEBITS_EACH2(vceqq_f32, a, b); }
INLINE M operator&(M a, M b) { return SAMEBITS_EACH2(vandq_u32, a, b); }
INLINE M operator|(M a, M b) { return SAMEBITS_EACH2(vorrq_u32, a, b); }
INLINE M operator~(M a) { return SAMEBITS_EACH(vmvnq_u32, a); }
INLINE M operator!=(F a, F b) { return ~(a == b); }
INLINE M first_lanes(int n) {
    const I lane = {{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}};
    return SAMEBITS_WITH(vcltq_s32, lane, vdupq_n_s32(n));
}
INLINE bool any(M a) { return vmaxvq_u32(vorrq_u32(vorrq_u32(a.v[0], a.v[1]), vorrq_u32(a.v[2], a.v[3]))) != 0; }
INLINE bool all(M a) { return !any(~a); }
INLINE F select(M m, F yes, F no) { return SAMEBITS_EACH3(vbslq_f32, m, yes, no); }
INLINE I select(M m, I yes, I no) { return SAMEBITS_EACH3(vbslq_s32, m, yes, no); }
// a > b ? a : b, so b where either is NaN; the unit's own maximum is another function.
INLINE F max(F a, F b) { return select(a > b, a, b); }
INLINE F min(F a, F b) { return select(a < b, a, b); }
INLINE float reduce_max(F a) {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.v[0], a.v[1]), vmaxq_f32(a.v[2], a.v[3])));
}
INLINE F swap_pairs(F a) { return SAMEBITS_EACH(vrev64q_f32, a); }  // lanes 2i and 2i + 1 exchanged

INLINE I bits(F x) { return SAMEBITS_EACH(vreinterpretq_s32_f32, x); }
INLINE F from_bits(I x) { return SAMEBITS_EACH(vreinterpretq_f32_s32, x); }
INLINE I set(int32_t x) { return SAMEBITS_SAME(vdupq_n_s32(x)); }
INLINE I load(const int32_t* p) { return SAMEBITS_READ(vld1q_s32, p, 4); }
INLINE void store(int32_t* p, I x) {
    for (int i = 0; i < 4; i++) vst1q_s32(p + 4 * i, x.v[i]);
}
// Integers wrap. The same instructions on unsigned lanes, because gcc's arm_neon.h writes the signed ones as a + b, where
// wrapping is undefined.
#define SAMEBITS_WRAPPING(name, f) \
    INLINE int32x4_t name(int32x4_t a, int32x4_t b) { \
        return vreinterpretq_s32_u32(f(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b))); \
    }
SAMEBITS_WRAPPING(add_4, vaddq_u32)
SAMEBITS_WRAPPING(subtract_4, vsubq_u32)
SAMEBITS_WRAPPING(multiply_4, vmulq_u32)
INLINE I operator+(I a, I b) { return SAMEBITS_EACH2(add_4, a, b); }
INLINE I operator-(I a, I b) { return SAMEBITS_EACH2(subtract_4, a, b); }
INLINE I operator*(I a, I b) { return SAMEBITS_EACH2(multiply_4, a, b); }
INLINE I operator&(I a, I b) { return SAMEBITS_EACH2(vandq_s32, a, b); }
INLINE I operator|(I a, I b) { return SAMEBITS_EACH2(vorrq_s32, a, b); }
INLINE I operator^(I a, I b) { return SAMEBITS_EACH2(veorq_s32, a, b); }
template <int N>
INLINE I shift_left(I a) { return SAMEBITS_WITH(vshlq_n_s32, a, N); }
template <int N>
INLINE I shift_right(I a) { return SAMEBITS_WITH(vshrq_n_s32, a, N); }  // keeps the sign
template <int N>
INLINE int32x4_t shift_4(int32x4_t a) { return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), N)); }
template <int N>
INLINE I shift_right_unsigned(I a) { return SAMEBITS_EACH(shift_4<N>, a); }
INLINE F to_float(I x) { return SAMEBITS_EACH(vcvtq_f32_s32, x); }
// A conversion takes one of two pipes for two cycles. A sum that starts from the bits of 1.5 * 2^23 needs none while it
// stays within 2^22: its bits are those of 1.5 * 2^23 + the sum.
constexpr int32_t kSumStart = 0x4B400000;
INLINE F sum_to_float(I x) { return from_bits(x) - set(0x1.8p23f); }
// A start in all lanes by four loads: the pipes of loads have room, and a copy would take one that multiplies.
constexpr int kStartLanes = 4;
INLINE I load_start(const int32_t* p) {
    I start;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __asm__("" : "+r"(p));  // else the compiler loads once and copies
        start.v[i] = vld1q_s32(p);
    }
    return start;
}

// 16-bit types, to nearest even.
INLINE float32x4_t load_4_f16(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
INLINE F load_f16(const uint16_t* p) { return SAMEBITS_READ(load_4_f16, p, 4); }
INLINE void store_f16(uint16_t* p, F x) {
    for (int i = 0; i < 4; i++) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
}
INLINE float32x4_t round_4_f16(float32x4_t x) { return vcvt_f32_f16(vcvt_f16_f32(x)); }
INLINE F round_f16(F x) { return SAMEBITS_EACH(round_4_f16, x); }
// Each 16-bit word as the upper half of a lane.
INLINE float32x4_t load_4_high(const uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
INLINE F load_u16_high(const uint16_t* p) { return SAMEBITS_READ(load_4_high, p, 4); }
INLINE void store_u16(uint16_t* p, I x) {
    for (int i = 0; i < 4; i++) vst1_u16(p + 4 * i, vmovn_u32(vreinterpretq_u32_s32(x.v[i])));
}

INLINE I load_i8(const int8_t* p) {
    const int8x16_t x = vld1q_s8(p);
    const int16x8_t low = vmovl_s8(vget_low_s8(x)), high = vmovl_s8(vget_high_s8(x));
    return {{vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)), vmovl_s16(vget_low_s16(high)),
             vmovl_s16(vget_high_s16(high))}};
}
INLINE I load_u8(const uint8_t* p) {
    const uint8x16_t x = vld1q_u8(p);
    const uint16x8_t low = vmovl_u8(vget_low_u8(x)), high = vmovl_u8(vget_high_u8(x));
    const uint32x4_t wide[4] = {vmovl_u16(vget_low_u16(low)), vmovl_u16(vget_high_u16(low)),
                                vmovl_u16(vget_low_u16(high)), vmovl_u16(vget_high_u16(high))};
    return {{vreinterpretq_s32_u32(wide[0]), vreinterpretq_s32_u32(wide[1]), vreinterpretq_s32_u32(wide[2]),
             vreinterpretq_s32_u32(wide[3])}};
}
INLINE void store_i8(int8_t* p, I x) {
    const int16x8_t low = vcombine_s16(vmovn_s32(x.v[0]), vmovn_s32(x.v[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(x.v[2]), vmovn_s32(x.v[3]));
    vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

// Sub-scales: integers, in the type by which this set multiplies integer sums best. Products stay below 2^24.
using Whole = I;
INLINE Whole whole(I x) { return x; }
INLINE F scaled(I sum, Whole by) { return to_float(sum * by); }
// The sums of two halves, each by its own.
INLINE F scaled(I low, Whole by_low, I high, Whole by_high) {
    const I first = low * by_low;
    const I both = SAMEBITS_EACH3(vmlaq_s32, first, high, by_high);
    return to_float(both);
}

// Integer dot products: lane r adds the 4 products of row r's bytes with the 4 bytes of x.
INLINE B load_bytes(const void* p) {
    const uint8_t* byte = static_cast<const uint8_t*>(p);
    return SAMEBITS_READ(vld1q_u8, byte, 16);
}
INLINE B set_bytes(int8_t x) { return SAMEBITS_SAME(vdupq_n_u8(uint8_t(x))); }
INLINE B operator&(B a, B b) { return SAMEBITS_EACH2(vandq_u8, a, b); }
INLINE B operator|(B a, B b) { return SAMEBITS_EACH2(vorrq_u8, a, b); }
#define SAMEBITS_SHIFTS_BYTES  // on sets without it bits cross into the next byte
template <int N>
INLINE B byte_shift_left(B a) { return SAMEBITS_WITH(vshlq_n_u8, a, N); }
template <int N>
INLINE B byte_shift_right(B a) { return SAMEBITS_WITH(vshrq_n_u8, a, N); }
INLINE B flip_signs(B a) { return SAMEBITS_WITH(veorq_u8, a, vdupq_n_u8(0x80)); }
INLINE B lookup16(const int8_t* table, B index) {  // table[index] for each byte, index 0 .. 15
    const uint8x16_t t = vreinterpretq_u8_s8(vld1q_s8(table));
    return {{vqtbl1q_u8(t, index.v[0]), vqtbl1q_u8(t, index.v[1]), vqtbl1q_u8(t, index.v[2]),
             vqtbl1q_u8(t, index.v[3])}};
}
INLINE int32x4_t dot_4_rows(int32x4_t sum, uint8x16_t w_bytes, int8x16_t x) {  // bytes that are signed
    const int8x16_t w = vreinterpretq_s8_u8(w_bytes);
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(sum, w, x);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
    return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
}
INLINE I dot_small(I sum, B w, int32_t x) {  // w 0 .. 127
    const int8x16_t four = vreinterpretq_s8_s32(vdupq_n_s32(x));
    return {{dot_4_rows(sum.v[0], w.v[0], four), dot_4_rows(sum.v[1], w.v[1], four), dot_4_rows(sum.v[2], w.v[2], four),
             dot_4_rows(sum.v[3], w.v[3], four)}};
}
// w is a signed byte xor 0x80. The unit multiplies signed bytes, so the sum is that of w as signed: no bias.
constexpr int kBias8 = 0;
INLINE I dot_biased(I sum, B w, int32_t x) { return dot_small(sum, w, x); }  // w a signed byte + kBias8
INLINE I dot_8bit(I sum, B w, int32_t x) { return dot_small(sum, flip_signs(w), x); }

#if defined(__ARM_FEATURE_DOTPROD)
// For T tokens at once: theirs are lanes of one register, from which the unit takes them without a copy into all.
template <int N, class X>
INLINE int32x4_t dot_lane(int32x4_t sum, uint8x16_t w, X x) {
    if constexpr (sizeof(X) == 8) return vdotq_lane_s32(sum, vreinterpretq_s8_u8(w), x, N);
    else return vdotq_laneq_s32(sum, vreinterpretq_s8_u8(w), x, N);
}
template <int N, class X>
INLINE I dot_lane(I sum, B w, X x) {
    return {{dot_lane<N>(sum.v[0], w.v[0], x), dot_lane<N>(sum.v[1], w.v[1], x), dot_lane<N>(sum.v[2], w.v[2], x),
             dot_lane<N>(sum.v[3], w.v[3], x)}};
}
template <int T>
INLINE void dot_small(I (&sum)[T], B w, const int8_t (*x)[4]) {  // reads 8 bytes of x at least
    static_assert(T == 1 || T == 2 || T == 4, "they fill a register, half of one or a quarter");
    if constexpr (T == 4) {
        const int8x16_t tokens = vld1q_s8(x[0]);
        sum[0] = dot_lane<0>(sum[0], w, tokens), sum[1] = dot_lane<1>(sum[1], w, tokens);
        sum[2] = dot_lane<2>(sum[2], w, tokens), sum[3] = dot_lane<3>(sum[3], w, tokens);
    } else {
        const int8x8_t tokens = vld1_s8(x[0]);
        sum[0] = dot_lane<0>(sum[0], w, tokens);
        if constexpr (T == 2) sum[1] = dot_lane<1>(sum[1], w, tokens);
    }
}
template <int T>
INLINE void dot_8bit(I (&sum)[T], B w, const int8_t (*x)[4]) { dot_small<T>(sum, flip_signs(w), x); }
template <int T>
INLINE void dot_biased(I (&sum)[T], B w, const int8_t (*x)[4]) { dot_small<T>(sum, w, x); }
#define SAMEBITS_DOTS_BY_LANE
#endif

#if defined(__ARM_FEATURE_MATMUL_INT8)
// The matrix instruction for int8, and what its operands are made by: ops/gemm_mmla.h.
#define SAMEBITS_HAS_MMLA 1
using BytePart = uint8x16_t;
using IntPart = int32x4_t;
INLINE uint32x4_t words(BytePart a) { return vreinterpretq_u32_u8(a); }
INLINE BytePart zip_low(BytePart a, BytePart b) { return vreinterpretq_u8_u32(vzip1q_u32(words(a), words(b))); }
INLINE BytePart zip_high(BytePart a, BytePart b) { return vreinterpretq_u8_u32(vzip2q_u32(words(a), words(b))); }
INLINE BytePart pair_even(BytePart a, BytePart b) { return vreinterpretq_u8_u32(vtrn1q_u32(words(a), words(b))); }
INLINE BytePart pair_odd(BytePart a, BytePart b) { return vreinterpretq_u8_u32(vtrn2q_u32(words(a), words(b))); }
INLINE BytePart load_register(const int8_t* p) { return vreinterpretq_u8_s8(vld1q_s8(p)); }
INLINE void store_register(int8_t* p, BytePart x) { vst1q_s8(p, vreinterpretq_s8_u8(x)); }
INLINE BytePart load_tokens(const int8_t* p) { return load_register(p); }  // four
INLINE IntPart multiply_pairs(IntPart sum, BytePart rows, BytePart tokens) {
    return vmmlaq_s32(sum, vreinterpretq_s8_u8(rows), vreinterpretq_s8_u8(tokens));
}
INLINE IntPart unzip_even(IntPart a, IntPart b) { return vuzp1q_s32(a, b); }
INLINE IntPart unzip_odd(IntPart a, IntPart b) { return vuzp2q_s32(a, b); }
#endif

constexpr int kRegisters = 4;  // of 16 lanes

// Tokens of a matmul whose sums of 16 rows stay in registers.
constexpr int kTile = 4;

INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

#undef SAMEBITS_SAME
#undef SAMEBITS_READ
#undef SAMEBITS_EACH
#undef SAMEBITS_EACH2
#undef SAMEBITS_EACH3
#undef SAMEBITS_WITH

}  // namespace samebits::SAMEBITS_ISA
