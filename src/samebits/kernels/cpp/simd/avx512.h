// Sixteen lanes in one register: AVX-512 (F, BW, DQ, VL) with VNNI.
#pragma once
#include <immintrin.h>

namespace samebits::SAMEBITS_ISA {

struct F {  // 16 float32
    __m512 v;
};
struct I {  // 16 int32
    __m512i v;
};
struct B {  // 64 bytes: 4 consecutive k of 16 rows
    __m512i v;
};
struct M {  // one bit a lane
    __mmask16 v;
};

INLINE M first_lanes(int n) { return {__mmask16(n >= 16 ? 0xFFFF : (1u << n) - 1)}; }

INLINE F load(const float* p) { return {_mm512_loadu_ps(p)}; }
INLINE F load_partial(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n).v, p)}; }
INLINE void store(float* p, F x) { _mm512_storeu_ps(p, x.v); }
INLINE void store_partial(float* p, F x, int n) { _mm512_mask_storeu_ps(p, first_lanes(n).v, x.v); }
INLINE F set(float x) { return {_mm512_set1_ps(x)}; }
INLINE F zero() { return {_mm512_setzero_ps()}; }
INLINE float first(F x) { return _mm512_cvtss_f32(x.v); }

INLINE F operator+(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
INLINE F operator-(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
INLINE F operator*(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
// a * b + c; only where the product is exact, so that one rounding and two give the same number.
INLINE F fma_exact(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
INLINE F abs(F a) { return {_mm512_abs_ps(a.v)}; }

INLINE M operator<(F a, F b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
INLINE M operator>(F a, F b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)}; }
INLINE M operator<=(F a, F b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
INLINE M operator>=(F a, F b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ)}; }
INLINE M operator==(F a, F b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
INLINE M operator!=(F a, F b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_NEQ_UQ)}; }
INLINE M operator&(M a, M b) { return {__mmask16(a.v & b.v)}; }
INLINE M operator|(M a, M b) { return {__mmask16(a.v | b.v)}; }
INLINE M operator~(M a) { return {__mmask16(~a.v)}; }
INLINE bool any(M a) { return a.v != 0; }
INLINE bool all(M a) { return a.v == 0xFFFF; }
INLINE F select(M m, F yes, F no) { return {_mm512_mask_blend_ps(m.v, no.v, yes.v)}; }
INLINE I select(M m, I yes, I no) { return {_mm512_mask_blend_epi32(m.v, no.v, yes.v)}; }
// a > b ? a : b, so b where either is NaN.
INLINE F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
INLINE F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
INLINE float reduce_max(F a) { return _mm512_reduce_max_ps(a.v); }
INLINE F swap_pairs(F a) { return {_mm512_permute_ps(a.v, 0xB1)}; }  // lanes 2i and 2i + 1 exchanged

INLINE I bits(F x) { return {_mm512_castps_si512(x.v)}; }
INLINE F from_bits(I x) { return {_mm512_castsi512_ps(x.v)}; }
INLINE I set(int32_t x) { return {_mm512_set1_epi32(x)}; }
INLINE I load(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
INLINE void store(int32_t* p, I x) { _mm512_storeu_si512(p, x.v); }
INLINE I operator+(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
INLINE I operator-(I a, I b) { return {_mm512_sub_epi32(a.v, b.v)}; }
INLINE I operator*(I a, I b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
INLINE I operator&(I a, I b) { return {_mm512_and_si512(a.v, b.v)}; }
INLINE I operator|(I a, I b) { return {_mm512_or_si512(a.v, b.v)}; }
INLINE I operator^(I a, I b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int N>
INLINE I shift_left(I a) { return {_mm512_slli_epi32(a.v, N)}; }
template <int N>
INLINE I shift_right(I a) { return {_mm512_srai_epi32(a.v, N)}; }  // keeps the sign
template <int N>
INLINE I shift_right_unsigned(I a) { return {_mm512_srli_epi32(a.v, N)}; }
INLINE F to_float(I x) { return {_mm512_cvtepi32_ps(x.v)}; }

// 16-bit types, to nearest even.
INLINE F load_f16(const uint16_t* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))}; }
INLINE void store_f16(uint16_t* p, F x) { _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT)); }
INLINE F round_f16(F x) { return {_mm512_cvtph_ps(_mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT))}; }
INLINE F load_u16_high(const uint16_t* p) {  // each 16-bit word as the upper half of a lane
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16))};
}
INLINE void store_u16(uint16_t* p, I x) { _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(x.v)); }

INLINE I load_i8(const int8_t* p) { return {_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p))}; }
INLINE I load_u8(const uint8_t* p) { return {_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p))}; }
INLINE void store_i8(int8_t* p, I x) { _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(x.v)); }

// Integer dot products: lane r adds the 4 products of row r's bytes with the 4 bytes of x.
INLINE B load_bytes(const void* p) { return {_mm512_loadu_si512(p)}; }
INLINE B set_bytes(int8_t x) { return {_mm512_set1_epi8(x)}; }
INLINE B operator&(B a, B b) { return {_mm512_and_si512(a.v, b.v)}; }
INLINE B operator|(B a, B b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int N>
INLINE B byte_shift_left(B a) { return {_mm512_slli_epi16(a.v, N)}; }  // bits cross into the next byte: mask first
template <int N>
INLINE B byte_shift_right(B a) { return {_mm512_srli_epi16(a.v, N)}; }  // likewise: mask after
INLINE B lookup16(const int8_t* table, B index) {  // table[index] for each byte, index 0 .. 15
    __m512i t = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)table));
    return {_mm512_shuffle_epi8(t, index.v)};
}
INLINE I dot_small(I sum, B w, int32_t x) {  // w 0 .. 127
    return {_mm512_dpbusd_epi32(sum.v, w.v, _mm512_set1_epi32(x))};
}
// The dot products of T tokens, each four bytes broadcast by the instruction that multiplies them: from a register, which
// compilers load them into, takes twice the instructions. Both vector ports are the limit then, not the decoders.
#define SAMEBITS_DOTS_FROM_MEMORY
template <int T>
INLINE void dot_small(I (&sum)[T], B w, const int8_t (*x)[4]) {
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum[t].v) : "v"(w.v), "m"(x[t]));
}

// w is a signed byte xor 0x80. The sum is that of w as unsigned, which is the signed one + kBias8 * sum of x.
constexpr int kBias8 = 128;
INLINE I dot_8bit(I sum, B w, int32_t x) { return dot_small(sum, w, x); }
INLINE I dot_biased(I sum, B w, int32_t x) { return dot_small(sum, w, x); }  // w a signed byte + kBias8
template <int T>
INLINE void dot_8bit(I (&sum)[T], B w, const int8_t (*x)[4]) { dot_small<T>(sum, w, x); }
template <int T>
INLINE void dot_biased(I (&sum)[T], B w, const int8_t (*x)[4]) { dot_small<T>(sum, w, x); }

// Lane r: the 16 floats of row r of a block [16][16] added in order from +0.
INLINE F row_chains(const float* block) {
    __m512 x[16], y[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) x[i] = _mm512_loadu_ps(block + 16 * i);
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {  // quarter q of y[i + j]: element 4q + j of rows i .. i + 3
        const __m512 a = _mm512_unpacklo_ps(x[i], x[i + 1]), b = _mm512_unpackhi_ps(x[i], x[i + 1]);
        const __m512 c = _mm512_unpacklo_ps(x[i + 2], x[i + 3]), d = _mm512_unpackhi_ps(x[i + 2], x[i + 3]);
        y[i] = _mm512_shuffle_ps(a, c, 0x44);
        y[i + 1] = _mm512_shuffle_ps(a, c, 0xEE);
        y[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        y[i + 3] = _mm512_shuffle_ps(b, d, 0xEE);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {  // x[4q + j]: element 4q + j of all rows
        const __m512 a = _mm512_shuffle_f32x4(y[j], y[4 + j], 0x44), c = _mm512_shuffle_f32x4(y[j], y[4 + j], 0xEE);
        const __m512 b = _mm512_shuffle_f32x4(y[8 + j], y[12 + j], 0x44);
        const __m512 d = _mm512_shuffle_f32x4(y[8 + j], y[12 + j], 0xEE);
        x[j] = _mm512_shuffle_f32x4(a, b, 0x88);
        x[4 + j] = _mm512_shuffle_f32x4(a, b, 0xDD);
        x[8 + j] = _mm512_shuffle_f32x4(c, d, 0x88);
        x[12 + j] = _mm512_shuffle_f32x4(c, d, 0xDD);
    }
    __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) sum = _mm512_add_ps(sum, x[i]);
    return {sum};
}

// 16 float16 that lie `stride` bytes apart; 4 bytes are read at each.
INLINE F gather_f16(const char* p, int stride) {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i at = _mm512_mullo_epi32(lane, _mm512_set1_epi32(stride));
    return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_i32gather_epi32(at, p, 1)))};
}

constexpr int kRegisters = 1;  // of 16 lanes

// Tokens of a matmul whose sums of 16 rows stay in registers.
constexpr int kTile = 8;

INLINE void prefetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }

}  // namespace samebits::SAMEBITS_ISA
