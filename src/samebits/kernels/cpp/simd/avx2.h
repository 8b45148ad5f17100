// Sixteen lanes in two registers: AVX2 with FMA and F16C, and with AVX-VNNI where SAMEBITS_USE_AVX_VNNI is set.
#pragma once
#include <immintrin.h>

namespace samebits::SAMEBITS_ISA {

struct F {  // 16 float32
    __m256 low, high;
};
struct I {  // 16 int32
    __m256i low, high;
};
struct B {  // 64 bytes: 4 consecutive k of 16 rows
    __m256i low, high;
};
struct M {  // a lane of ones or of zeros
    __m256 low, high;
};

INLINE M first_lanes(int n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane)),
            _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), lane))};
}

INLINE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE void store(float* p, F x) {
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
}
// Masked loads and stores are slow on some CPUs, and most rows fill their lanes.
INLINE F load_partial(const float* p, int n) {
    if (n >= 16) return load(p);
    const M m = first_lanes(n);
    return {_mm256_maskload_ps(p, _mm256_castps_si256(m.low)), _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.high))};
}
INLINE void store_partial(float* p, F x, int n) {
    if (n >= 16) return store(p, x);
    const M m = first_lanes(n);
    _mm256_maskstore_ps(p, _mm256_castps_si256(m.low), x.low);
    _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.high), x.high);
}
INLINE F set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
INLINE float first(F x) { return _mm256_cvtss_f32(x.low); }

INLINE F operator+(F a, F b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
INLINE F operator-(F a, F b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
INLINE F operator*(F a, F b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
// a * b + c; only where the product is exact, so that one rounding and two give the same number.
INLINE F fma_exact(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
INLINE F abs(F a) {
    return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.low), _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.high)};
}

template <int How>
INLINE M compare(F a, F b) { return {_mm256_cmp_ps(a.low, b.low, How), _mm256_cmp_ps(a.high, b.high, How)}; }
INLINE M operator<(F a, F b) { return compare<_CMP_LT_OQ>(a, b); }
INLINE M operator>(F a, F b) { return compare<_CMP_GT_OQ>(a, b); }
INLINE M operator<=(F a, F b) { return compare<_CMP_LE_OQ>(a, b); }
INLINE M operator>=(F a, F b) { return compare<_CMP_GE_OQ>(a, b); }
INLINE M operator==(F a, F b) { return compare<_CMP_EQ_OQ>(a, b); }
INLINE M operator!=(F a, F b) { return compare<_CMP_NEQ_UQ>(a, b); }
INLINE M operator&(M a, M b) { return {_mm256_and_ps(a.low, b.low), _mm256_and_ps(a.high, b.high)}; }
INLINE M operator|(M a, M b) { return {_mm256_or_ps(a.low, b.low), _mm256_or_ps(a.high, b.high)}; }
INLINE M operator~(M a) {
    const __m256 ones = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    return {_mm256_xor_ps(a.low, ones), _mm256_xor_ps(a.high, ones)};
}
INLINE bool any(M a) { return _mm256_movemask_ps(_mm256_or_ps(a.low, a.high)) != 0; }
INLINE bool all(M a) { return _mm256_movemask_ps(_mm256_and_ps(a.low, a.high)) == 0xFF; }
INLINE F select(M m, F yes, F no) {
    return {_mm256_blendv_ps(no.low, yes.low, m.low), _mm256_blendv_ps(no.high, yes.high, m.high)};
}
// a > b ? a : b, so b where either is NaN.
INLINE F max(F a, F b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
INLINE F min(F a, F b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
INLINE float reduce_max(F a) {
    const __m256 eight = _mm256_max_ps(a.low, a.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
INLINE F swap_pairs(F a) {  // lanes 2i and 2i + 1 exchanged
    return {_mm256_permute_ps(a.low, 0xB1), _mm256_permute_ps(a.high, 0xB1)};
}

INLINE I bits(F x) { return {_mm256_castps_si256(x.low), _mm256_castps_si256(x.high)}; }
INLINE F from_bits(I x) { return {_mm256_castsi256_ps(x.low), _mm256_castsi256_ps(x.high)}; }
INLINE I select(M m, I yes, I no) { return bits(select(m, from_bits(yes), from_bits(no))); }
INLINE I set(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
INLINE __m256i load_256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
INLINE __m128i load_128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
INLINE I load(const int32_t* p) { return {load_256(p), load_256(p + 8)}; }
INLINE void store(int32_t* p, I x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.high);
}
INLINE I operator+(I a, I b) { return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)}; }
INLINE I operator-(I a, I b) { return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)}; }
INLINE I operator*(I a, I b) { return {_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)}; }
INLINE I operator&(I a, I b) { return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)}; }
INLINE I operator|(I a, I b) { return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)}; }
INLINE I operator^(I a, I b) { return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)}; }
template <int N>
INLINE I shift_left(I a) { return {_mm256_slli_epi32(a.low, N), _mm256_slli_epi32(a.high, N)}; }
template <int N>
INLINE I shift_right(I a) { return {_mm256_srai_epi32(a.low, N), _mm256_srai_epi32(a.high, N)}; }  // keeps the sign
template <int N>
INLINE I shift_right_unsigned(I a) { return {_mm256_srli_epi32(a.low, N), _mm256_srli_epi32(a.high, N)}; }
INLINE F to_float(I x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }

// 16-bit types, to nearest even.
INLINE F load_f16(const uint16_t* p) { return {_mm256_cvtph_ps(load_128(p)), _mm256_cvtph_ps(load_128(p + 8))}; }
INLINE void store_f16(uint16_t* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.high, _MM_FROUND_TO_NEAREST_INT));
}
INLINE F round_f16(F x) {
    return {_mm256_cvtph_ps(_mm256_cvtps_ph(x.low, _MM_FROUND_TO_NEAREST_INT)),
            _mm256_cvtph_ps(_mm256_cvtps_ph(x.high, _MM_FROUND_TO_NEAREST_INT))};
}
INLINE F load_u16_high(const uint16_t* p) {  // each 16-bit word as the upper half of a lane
    return from_bits(shift_left<16>(I{_mm256_cvtepu16_epi32(load_128(p)), _mm256_cvtepu16_epi32(load_128(p + 8))}));
}
INLINE __m256i low_words(I x) {  // the lower 16 bits of each lane, in order
    const __m256i mask = _mm256_set1_epi32(0xFFFF);
    const __m256i mixed = _mm256_packus_epi32(_mm256_and_si256(x.low, mask), _mm256_and_si256(x.high, mask));
    return _mm256_permute4x64_epi64(mixed, 0xD8);
}
INLINE void store_u16(uint16_t* p, I x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), low_words(x)); }

INLINE I load_i8(const int8_t* p) {
    const __m128i x = load_128(p);
    return {_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))};
}
INLINE I load_u8(const uint8_t* p) {
    const __m128i x = load_128(p);
    return {_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8))};
}
INLINE void store_i8(int8_t* p, I x) {
    const __m256i words = _mm256_and_si256(low_words(x), _mm256_set1_epi16(0xFF));
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

// Integer dot products: lane r adds the 4 products of row r's bytes with the 4 bytes of x.
INLINE B load_bytes(const void* p) { return {load_256(p), load_256(static_cast<const char*>(p) + 32)}; }
INLINE B set_bytes(int8_t x) { return {_mm256_set1_epi8(x), _mm256_set1_epi8(x)}; }
INLINE B operator&(B a, B b) { return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)}; }
INLINE B operator|(B a, B b) { return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)}; }
// Bits cross into the next byte: mask before a shift to the left and after one to the right.
template <int N>
INLINE B byte_shift_left(B a) { return {_mm256_slli_epi16(a.low, N), _mm256_slli_epi16(a.high, N)}; }
template <int N>
INLINE B byte_shift_right(B a) { return {_mm256_srli_epi16(a.low, N), _mm256_srli_epi16(a.high, N)}; }
INLINE B lookup16(const int8_t* table, B index) {  // table[index] for each byte, index 0 .. 15
    const __m256i t = _mm256_broadcastsi128_si256(load_128(table));
    return {_mm256_shuffle_epi8(t, index.low), _mm256_shuffle_epi8(t, index.high)};
}
#if defined(SAMEBITS_USE_AVX_VNNI)
INLINE I dot_small(I sum, B w, int32_t x) {  // w 0 .. 127
    const __m256i four = _mm256_set1_epi32(x);
    return {_mm256_dpbusd_avx_epi32(sum.low, w.low, four), _mm256_dpbusd_avx_epi32(sum.high, w.high, four)};
}
// w is a signed byte xor 0x80. The sum is that of w as unsigned, which is the signed one + kBias8 * sum of x.
constexpr int kBias8 = 128;
INLINE I dot_8bit(I sum, B w, int32_t x) { return dot_small(sum, w, x); }
INLINE I dot_biased(I sum, B w, int32_t x) { return dot_small(sum, w, x); }  // w a signed byte + kBias8
#else
// Pairs of products are added in 16 bits: unsigned w to 128 and signed x to 127 stay below 2^15.
INLINE __m256i dot_pairs(__m256i sum, __m256i w, __m256i x) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
}
INLINE I dot_small(I sum, B w, int32_t x) {  // w 0 .. 127
    const __m256i four = _mm256_set1_epi32(x);
    return {dot_pairs(sum.low, w.low, four), dot_pairs(sum.high, w.high, four)};
}
// w is a signed byte xor 0x80. Its sign goes to x, which is no -128; the sum is that of w as signed.
constexpr int kBias8 = 0;
INLINE __m256i dot_signed(__m256i sum, __m256i w, __m256i x) {
    return dot_pairs(sum, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}
INLINE I dot_biased(I sum, B w, int32_t x) {  // w a signed byte + kBias8
    const __m256i four = _mm256_set1_epi32(x);
    return {dot_signed(sum.low, w.low, four), dot_signed(sum.high, w.high, four)};
}
INLINE I dot_8bit(I sum, B w, int32_t x) {
    const __m256i sign = _mm256_set1_epi8(-128);
    return dot_biased(sum, {_mm256_xor_si256(w.low, sign), _mm256_xor_si256(w.high, sign)}, x);
}
#endif

constexpr int kRegisters = 2;  // of 16 lanes

// Tokens of a matmul whose sums of 16 rows stay in registers.
constexpr int kTile = 4;

INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace samebits::SAMEBITS_ISA
