// The vector of sixteen lanes that every kernel is written in, on the instruction set this file is compiled for.
// SAMEBITS_ISA names the set and is the namespace of all that is compiled with its flags, so that no function
// of one set can be linked in the place of another's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#define INLINE inline __attribute__((always_inline))

#if defined(SAMEBITS_USE_AVX512)
#include "avx512.h"
#elif defined(SAMEBITS_USE_AVX2)
#include "avx2.h"
#elif defined(SAMEBITS_USE_NEON)
#include "neon.h"
#elif defined(SAMEBITS_USE_SVE)
#include "sve.h"
#else
#include "scalar.h"
#endif

namespace samebits::SAMEBITS_ISA {

// The lanes added in order from +0.
INLINE float chain(F x) {
    alignas(64) float lane[16];
    store(lane, x);
    float sum = 0;
    for (int i = 0; i < 16; i++) sum += lane[i];
    return sum;
}

// A number as ops give it: +0 in the place of -0 and of every magnitude below 2^-50; NaN and Inf stay.
INLINE F settle(F x) { return select(abs(x) < set(0x1p-50f), zero(), x); }
INLINE float settle(float x) { return __builtin_fabsf(x) < 0x1p-50f ? 0.0f : x; }
// The same for what is to be rounded to float16, where 2^-25 and less is zero.
INLINE F settle_f16(F x) { return select(abs(x) <= set(0x1p-25f), zero(), x); }

#if !defined(SAMEBITS_DOTS_BY_LANE) && !defined(SAMEBITS_DOTS_FROM_MEMORY)
// The dot products of T tokens.
template <int T>
INLINE void dot_small(I (&sum)[T], B w, const int8_t (*x)[4]) {
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) {
        int32_t four;
        memcpy(&four, x[t], 4);
        sum[t] = dot_small(sum[t], w, four);
    }
}
template <int T>
INLINE void dot_8bit(I (&sum)[T], B w, const int8_t (*x)[4]) {
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) {
        int32_t four;
        memcpy(&four, x[t], 4);
        sum[t] = dot_8bit(sum[t], w, four);
    }
}
template <int T>
INLINE void dot_biased(I (&sum)[T], B w, const int8_t (*x)[4]) {
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) {
        int32_t four;
        memcpy(&four, x[t], 4);
        sum[t] = dot_biased(sum[t], w, four);
    }
}
#endif
#if defined(SAMEBITS_SHIFTS_BYTES)
INLINE B high_nibbles(B a) { return byte_shift_right<4>(a); }
INLINE B top_pairs(B a) { return byte_shift_right<6>(a); }
#else
INLINE B high_nibbles(B a) { return byte_shift_right<4>(a) & set_bytes(15); }
INLINE B top_pairs(B a) { return byte_shift_right<6>(a) & set_bytes(3); }
#endif
#if !defined(SAMEBITS_USE_NEON)
// Where integer sums start that will be floats, and such a sum as one.
constexpr int32_t kSumStart = 0;
INLINE F sum_to_float(I x) { return to_float(x); }
// Copies of a start that are kept in memory, and a start in all lanes.
constexpr int kStartLanes = 1;
INLINE I load_start(const int32_t* p) { return set(*p); }
// Sub-scales: integers, in the type by which this set multiplies integer sums best. Products stay below 2^24.
using Whole = F;
INLINE Whole whole(I x) { return to_float(x); }
INLINE F to_float(Whole x) { return x; }
INLINE F scaled(I sum, Whole by) { return to_float(sum) * by; }
// The sums of two halves, each by its own.
INLINE F scaled(I low, Whole by_low, I high, Whole by_high) { return fma_exact(to_float(high), by_high, scaled(low, by_low)); }
#endif

// bfloat16: the upper half of a float32, to nearest even. A NaN stays one.
INLINE F load_bf16(const uint16_t* p) { return load_u16_high(p); }
INLINE I bf16_bits(F x) {
    const I u = bits(x);
    const I odd = shift_right_unsigned<16>(u) & set(1);
    const I rounded = shift_right_unsigned<16>(u + set(0x7FFF) + odd);
    return select(x != x, set(0x7FC0), rounded);
}
INLINE void store_bf16(uint16_t* p, F x) { store_u16(p, bf16_bits(x)); }
INLINE F round_bf16(F x) { return from_bits(shift_left<16>(bf16_bits(x))); }

#if !defined(SAMEBITS_USE_AVX512)
// Lane r: the 16 floats of row r of a block [16][16] added in order from +0.
INLINE F row_chains(const float* block) {
    float sum[16] = {};
    for (int i = 0; i < 16; i++)
        for (int r = 0; r < 16; r++) sum[r] += block[16 * r + i];
    return load(sum);
}

// 16 float16 that lie `stride` bytes apart; 4 bytes are read at each.
INLINE F gather_f16(const char* p, int stride) {
    uint16_t half[16];
    for (int i = 0; i < 16; i++) memcpy(half + i, p + i * stride, 2);
    return load_f16(half);
}
#endif

}  // namespace samebits::SAMEBITS_ISA
