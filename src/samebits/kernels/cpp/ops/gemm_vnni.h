// Block-quantized products by integer dot instructions: a tile of 1 to 8 tokens against 16 rows in the lanes.
#pragma once
#include "pack.h"

namespace samebits::SAMEBITS_ISA {

// The blocks of T tokens side by side, so that a kernel needs a single pointer for all of them.
template <int T>
struct TokenBlock {
    int8_t q[8][T][4];
    float scale[T];
    // Where sums start: - bias * sum of q (of each half) undoes unsigned codes exactly. Where there is none, sums of q.
    int32_t start[2][T][kStartLanes];
    float sum[T];  // of q, for formats with an offset
};

// What is subtracted from a code after the dot product: an 8-bit code may have been made signed by the dot already.
template <class W>
constexpr int dot_bias = W::operand == Operand::small ? W::bias : kBias8;

// Whether a block's sum is made a float as it is; it then starts from kSumStart.
static_assert(kBlock * 128 * 128 < 1 << 22, "no sum of a block is beyond what kSumStart allows");
template <class W>
constexpr bool is_float_sum = W::term == Term::scale || W::term == Term::offset;
template <class W>
constexpr int32_t sum_start = is_float_sum<W> ? kSumStart : 0;
template <class W>
constexpr bool has_start = dot_bias<W> != 0 || sum_start<W> != 0;

// Whether quantize_q8 makes such a block: no code is -128, and its scale is finite.
INLINE bool is_quantized(const int8_t* codes, float scale) {
    int8_t lowest = 0;
    for (int k = 0; k < kBlock; k++) lowest = codes[k] < lowest ? codes[k] : lowest;
    return lowest > -128 && scale - scale == 0.0f;
}
constexpr Failure kNotQuantized{"codes", "-128, or a scale that is NaN or Inf", "what quantize_q8 makes"};

// A token in int8 blocks.
struct TokenRow {
    const int8_t* codes;
    const float* scales;
};

// Blocks first .. last - 1 of T tokens into the order that tiles read; false where one is not as quantize_q8 makes it.
template <class W, int T>
INLINE bool fill_token_blocks(const TokenRow (&rows)[T], int64_t first, int64_t last, TokenBlock<T>* to) {
    bool fine = true;
    for (int64_t b = first; b < last; b++)
        for (int t = 0; t < T; t++) {
            const int8_t* from = rows[t].codes + b * kBlock;
            const float scale = rows[t].scales[b];
            fine &= is_quantized(from, scale);
            TokenBlock<T>& block = to[b];
            int low = 0, high = 0;
            for (int k = 0; k < 16; k++) low += from[k];
            for (int k = 16; k < kBlock; k++) high += from[k];
            for (int g = 0; g < 8; g++) memcpy(block.q[g][t], from + 4 * g, 4);
            block.scale[t] = scale;
            block.sum[t] = float(low + high);
            const int factor = has_start<W> ? -dot_bias<W> : 1;
            for (int lane = 0; lane < kStartLanes; lane++) {
                block.start[0][t][lane] = factor * (is_halved(W::term) ? low : low + high) + sum_start<W>;
                block.start[1][t][lane] = is_halved(W::term) ? factor * high : 0;
            }
        }
    return fine;
}

// Whether the two halves of a block are summed apart: for the format, or for two shorter chains of instructions.
template <class W, int T>
constexpr bool sums_apart = is_halved(W::term) || (T <= 2 && kRegisters < 4);

// The integer sums of a block; `high` is set only where halves are summed apart.
template <class W, int T>
INLINE void dots(const uint8_t* codes, const TokenBlock<T>& x, I (&low)[T], I (&high)[T]) {
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) {
        low[t] = has_start<W> ? load_start(x.start[0][t]) : set(0);
        high[t] = dot_bias<W> && is_halved(W::term) ? load_start(x.start[1][t]) : set(0);
    }
    W::each(codes, [&](int g, B w) __attribute__((always_inline)) {
        if (g < W::code_bytes / 64) prefetch(codes + 4096 + 64 * g);
        I(&sum)[T] = sums_apart<W, T> && g >= 4 ? high : low;
        if constexpr (W::operand == Operand::flipped) dot_8bit<T>(sum, w, x.q[g]);
        else if constexpr (W::operand == Operand::biased) dot_biased<T>(sum, w, x.q[g]);
        else dot_small<T>(sum, w, x.q[g]);
    });
    if (sums_apart<W, T> && !is_halved(W::term)) {
#pragma GCC unroll 8
        for (int t = 0; t < T; t++) low[t] = low[t] + high[t];
    }
}

// What the terms of one block need of its scales: d, m (minus dmin of super-blocks), the e4m3 scales of NVFP4's halves;
// sub-scales of the codes and of the offset, [1] of the upper half.
struct BlockScales {
    F d, m, e[2], min[2];
    Whole sub[2];
};

template <class W>
INLINE BlockScales load_scales(const uint8_t* span, int at, float tensor_scale) {
    BlockScales s{};
    if constexpr (W::has_e4m3) {
        s.d = set(0.5f * tensor_scale);
        s.e[0] = load_e4m3(span);
        s.e[1] = load_e4m3(span + 16);
    } else if constexpr (W::has_exponents) {
        s.d = load_exponents(span);
    } else {
        s.d = load_f16(reinterpret_cast<const uint16_t*>(span));
        if constexpr (W::term == Term::offset) s.m = load_f16(reinterpret_cast<const uint16_t*>(span + 32));
        else if constexpr (has_offset(W::term)) s.m = zero() - load_f16(reinterpret_cast<const uint16_t*>(span + 32));
        if constexpr (W::term == Term::super_offset) {
            s.sub[0] = whole(load_u8(span + 64 + 16 * at));
            s.min[0] = to_float(load_u8(span + 192 + 16 * at));
        }
        if constexpr (W::term == Term::halves_offset) {
            const I low = load_u8(span + 64 + 32 * at), high = load_u8(span + 80 + 32 * at);
            s.sub[0] = whole(low & set(15)), s.sub[1] = whole(high & set(15));
            s.min[0] = to_float(shift_right<4>(low)), s.min[1] = to_float(shift_right<4>(high));
        }
        const int8_t* signed_scales = reinterpret_cast<const int8_t*>(span) + 32;
        if constexpr (W::term == Term::sub_scale) s.sub[0] = whole(load_i8(signed_scales + 16 * at));
        if constexpr (W::term == Term::halves) {
            s.sub[0] = whole(load_i8(signed_scales + 32 * at));
            s.sub[1] = whole(load_i8(signed_scales + 32 * at + 16));
        }
    }
    return s;
}

// Of a token's block, what its term needs: the integer sum with 16 rows, or those of its halves; scale and sums of codes.
struct BlockSums {
    I low, high;
    float scale, sum, low_sum;  // low_sum: of the lower half
};

// The term of a block for one token: docs/numerics.md, section 4, with its parentheses.
template <class W>
INLINE F term_of(const BlockScales& s, const BlockSums& x) {
    const F sa = set(x.scale);
    if constexpr (W::term == Term::scale) return sum_to_float(x.low) * (s.d * sa);
    if constexpr (W::term == Term::offset) return (sum_to_float(x.low) * (s.d * sa)) + (set(x.sum) * (s.m * sa));
    if constexpr (W::term == Term::sub_scale) return scaled(x.low, s.sub[0]) * (s.d * sa);
    if constexpr (W::term == Term::super_offset)
        return (scaled(x.low, s.sub[0]) * (s.d * sa)) + ((set(x.sum) * s.min[0]) * (s.m * sa));
    if constexpr (W::has_e4m3) return ((to_float(x.low) * s.e[0]) + (to_float(x.high) * s.e[1])) * (s.d * sa);
    else if constexpr (is_halved(W::term)) {
        const F codes = scaled(x.low, s.sub[0], x.high, s.sub[1]) * (s.d * sa);
        if constexpr (W::term == Term::halves) return codes;
        const F offset = fma_exact(set(x.sum - x.low_sum), s.min[1], set(x.low_sum) * s.min[0]);
        return codes + (offset * (s.m * sa));
    }
}

// 16 rows of the product for T tokens: chunks of 8 blocks, each from +0, in order. sums(b, low, high) are those of a block,
// as `dots` gives them.
template <class W, int T, class Sums>
INLINE void tile_product(const uint8_t* group, int64_t blocks, float tensor_scale, const TokenBlock<T>* x, F (&total)[T],
                         Sums sums) {
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) total[t] = zero();
    for (int64_t start = 0; start < blocks; start += kChunkBlocks) {
        const int64_t stop = least(start + kChunkBlocks, blocks);
        F chunk[T];
#pragma GCC unroll 8
        for (int t = 0; t < T; t++) chunk[t] = zero();
        for (int64_t b = start; b < stop; b++) {
            I low[T], high[T];
            sums(b, low, high);
            const uint8_t* span = W::scales_at(group, b);
            prefetch(span + 4096);
            const BlockScales s = load_scales<W>(span, int(b % W::span), tensor_scale);
#pragma GCC unroll 8
            for (int t = 0; t < T; t++) {
                const float low_sum = W::term == Term::halves_offset ? float(x[b].start[0][t][0]) : 0.0f;
                chunk[t] = chunk[t] + term_of<W>(s, {low[t], high[t], x[b].scale[t], x[b].sum[t], low_sum});
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; t++) total[t] = total[t] + chunk[t];
    }
}

}  // namespace samebits::SAMEBITS_ISA
