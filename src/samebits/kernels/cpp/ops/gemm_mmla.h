// Block-quantized products by the matrix instruction of aarch64 for int8: in each 128 bits of a register 2 rows x 8 k by
// 8 k x 2 tokens, which are twice the products of a dot instruction.
//
// Its operands hold 8 k of a row side by side, where rows16 holds 4 of each of 4 rows. So a group's codes are unpacked
// and zipped once for all tokens of a part, and tokens are zipped as they are loaded.
#pragma once
#include "gemm_vnni.h"

#if SAMEBITS_HAS_MMLA
namespace samebits::SAMEBITS_ISA {

constexpr int64_t kPairedBytes = 512;  // of a block: [4 pairs of registers 2 i, 2 i + 1][8 pairs of rows][2 rows][8 k], signed
constexpr int kMmlaTokens = 4;         // of a tile at least
constexpr int kRegisterBytes = sizeof(BytePart), kPairRegisters = 2 * kRegisters;  // the latter hold 16 rows of 8 k

// A group's codes as this unit takes them, kPairedBytes a block.
template <class W>
INLINE void pair_codes(const uint8_t* codes, int64_t blocks, int8_t* to) {
    for (int64_t b = 0; b < blocks; b++, codes += W::code_bytes) {
        B unpacked[8];
        W::each(codes, [&](int g, B w) __attribute__((always_inline)) {
            if (g < W::code_bytes / 64) prefetch(codes + 4096 + 64 * g);
            unpacked[g] = W::operand == Operand::flipped ? flip_signs(w) : w;
        });
#pragma GCC unroll 4
        for (int pair = 0; pair < 4; pair++) {
            const B &even = unpacked[2 * pair], &odd = unpacked[2 * pair + 1];
#pragma GCC unroll 4
            for (int i = 0; i < kRegisters; i++, to += 2 * kRegisterBytes) {
                store_register(to, zip_low(even.v[i], odd.v[i]));
                store_register(to + kRegisterBytes, zip_high(even.v[i], odd.v[i]));
            }
        }
    }
}

// Sums of T tokens and 16 rows: [register of rows][pair of tokens], in each row by row. Of 4 tokens, the first pair is
// 0 and 2, the other 1 and 3.
template <int T>
struct PairedSums {
    IntPart v[kPairRegisters][T / 2];
};

template <int FirstPair, int StopPair, int T>
INLINE void add_pairs(PairedSums<T>& sums, const int8_t* codes, const TokenBlock<T>& x) {
#pragma GCC unroll 4
    for (int pair = FirstPair; pair < StopPair; pair++) {
        BytePart tokens[T / 2];
#pragma GCC unroll 2
        for (int t = 0; t < T; t += 4) {
            const BytePart even = load_tokens(x.q[2 * pair][t]), odd = load_tokens(x.q[2 * pair + 1][t]);
            tokens[t / 2] = pair_even(even, odd), tokens[t / 2 + 1] = pair_odd(even, odd);
        }
#pragma GCC unroll 8
        for (int i = 0; i < kPairRegisters; i++) {
            const BytePart rows = load_register(codes + (pair * kPairRegisters + i) * kRegisterBytes);
#pragma GCC unroll 4
            for (int t = 0; t < T / 2; t++) sums.v[i][t] = multiply_pairs(sums.v[i][t], rows, tokens[t]);
        }
    }
}

// Rows of each token in the lanes.
template <int T>
INLINE void separate_tokens(const PairedSums<T>& sums, I (&token)[T]) {
#pragma GCC unroll 4
    for (int i = 0; i < kRegisters; i++)
#pragma GCC unroll 4
        for (int t = 0; t < T / 2; t++) {
            const int even = t / 2 * 4 + t % 2;
            token[even].v[i] = unzip_even(sums.v[2 * i][t], sums.v[2 * i + 1][t]);
            token[even + 2].v[i] = unzip_odd(sums.v[2 * i][t], sums.v[2 * i + 1][t]);
        }
}

// As `dots`, from paired codes.
template <class W, int T>
INLINE void paired_dots(const int8_t* codes, const TokenBlock<T>& x, I (&low)[T], I (&high)[T]) {
    constexpr int kMiddle = is_halved(W::term) ? 2 : 4;
    PairedSums<T> sums{};
    add_pairs<0, kMiddle>(sums, codes, x);
    separate_tokens(sums, low);
    if constexpr (is_halved(W::term)) {
        PairedSums<T> upper{};
        add_pairs<kMiddle, 4>(upper, codes, x);
        separate_tokens(upper, high);
    }
    if constexpr (has_start<W>) {
#pragma GCC unroll 8
        for (int t = 0; t < T; t++) {
            low[t] = low[t] + load_start(x.start[0][t]);
            if (is_halved(W::term)) high[t] = high[t] + load_start(x.start[1][t]);
        }
    }
}

}  // namespace samebits::SAMEBITS_ISA
#endif
