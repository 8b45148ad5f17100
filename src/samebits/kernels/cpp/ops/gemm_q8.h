// gemm_q8, and gemm on block-quantized weights: rows16 groups are claimed by threads, tokens go in tiles.
#pragma once
#include "gemm_amx.h"

namespace samebits::SAMEBITS_ISA {

// Tokens from which AMX tiles are faster than dot instructions; no effect on bits.
constexpr int64_t kAmxTokens = 8;

// y [tokens, rows] = tokens in int8 blocks @ weight^T + bias, in float32.
struct BlockProduct {
    const int8_t* codes;
    int64_t codes_stride;
    const float* scales;
    int64_t scales_stride, tokens;  // strides in elements
    const uint8_t* weight;          // rows16
    Format format;
    int64_t rows, blocks;
    float tensor_scale;
    const float* bias;  // or null
    float* y;
    int64_t y_stride;
    char* shared;  // product_scratch bytes for all threads, 64-byte aligned

    INLINE void write(int64_t token, int64_t group, F x) const {
        const int64_t row = group * kGroup;
        const int n = int(least(kGroup, rows - row));
        if (bias) x = x + load_partial(bias + row, n);
        store_partial(y + token * y_stride + row, x, n);
    }
};

// Shared memory for the activations in the order that kernels read; per thread, an opened group.
inline Scratch product_scratch(int64_t tokens, int64_t blocks) {
    const size_t side_by_side = size_t(round_up(tokens, 8) * blocks) * (sizeof(TokenBlock<8>) / 8);
    const size_t padded = size_t(blocks) * (size_t(tokens) * 4 + 16 * kBlock) + 64;
    const size_t opened = size_t(blocks) * (512 + 256) + 2 * kChunkBlocks * 512 * 4;
    return {opened, side_by_side > padded ? side_by_side : padded};
}

// Tiles of 8, 4, 2 and 1 tokens, each with its number of tokens and the place of its first block.
template <class Fn>
INLINE void each_tile(int64_t tokens, int64_t blocks, char* memory, Fn f) {
    int64_t t = 0;
    for (; t + 8 <= tokens; t += 8) f(t, reinterpret_cast<TokenBlock<8>*>(memory) + t / 8 * blocks);
    char* rest = memory + size_t(t / 8 * blocks) * sizeof(TokenBlock<8>);
    if (t + 4 <= tokens) {
        f(t, reinterpret_cast<TokenBlock<4>*>(rest));
        rest += size_t(blocks) * sizeof(TokenBlock<4>);
        t += 4;
    }
    if (t + 2 <= tokens) {
        f(t, reinterpret_cast<TokenBlock<2>*>(rest));
        rest += size_t(blocks) * sizeof(TokenBlock<2>);
        t += 2;
    }
    if (t < tokens) f(t, reinterpret_cast<TokenBlock<1>*>(rest));
}

template <int T>
constexpr int tile_tokens(const TokenBlock<T>*) {
    return T;
}

template <class W>
void multiply_by_dots(const BlockProduct& p, Worker& worker) {
    const bool alone = p.tokens <= 1;  // a barrier costs more than one token's blocks
    char* memory = alone ? worker.scratch : p.shared;
    int64_t tile = 0;
    each_tile(p.tokens, p.blocks, memory, [&](int64_t t, auto* x) {
        constexpr int T = tile_tokens(decltype(x)(nullptr));
        if (!alone && tile++ % worker.count != worker.id) return;
        fill_token_blocks<W, T>(p.codes + t * p.codes_stride, p.codes_stride, p.scales + t * p.scales_stride,
                                p.scales_stride, p.blocks, x);
    });
    if (!alone) worker.barrier();
    const int64_t groups = (p.rows + kGroup - 1) / kGroup, piece = most(1, groups / (worker.count * 8));
    const size_t stride = W::group_bytes(p.blocks);
    int64_t first, last;
    while (worker.claim(groups, piece, first, last))
        for (int64_t g = first; g < last; g++)
            each_tile(p.tokens, p.blocks, memory, [&](int64_t t, auto* x) __attribute__((always_inline)) {
                constexpr int T = tile_tokens(decltype(x)(nullptr));
                F total[T];
                tile_product<W, T>(p.weight + size_t(g) * stride, p.blocks, p.tensor_scale, x, total);
#pragma GCC unroll 8
                for (int i = 0; i < T; i++) p.write(t + i, g, total[i]);
            });
}

#if SAMEBITS_HAS_AMX
template <class W>
void multiply_by_tiles(const BlockProduct& p, Worker& worker) {
    float* sums = reinterpret_cast<float*>(p.shared);
    int8_t* tail = reinterpret_cast<int8_t*>(p.shared) + round_up(p.tokens * p.blocks * 4, 64);
    const int64_t whole = p.tokens / kTileTokens * kTileTokens, width = p.blocks * kBlock;
    int64_t first, last;
    worker.share(p.tokens, first, last);
    for (int64_t t = first; t < last; t++)
        for (int64_t b = 0; b < p.blocks; b++) {
            int sum = 0;
            for (int k = 0; k < kBlock; k++) sum += p.codes[t * p.codes_stride + b * kBlock + k];
            sums[t * p.blocks + b] = float(sum);
        }
    worker.share(p.tokens - whole ? kTileTokens : 0, first, last);
    for (int64_t t = first; t < last; t++) {
        if (whole + t < p.tokens) memcpy(tail + t * width, p.codes + (whole + t) * p.codes_stride, size_t(width));
        else memset(tail + t * width, 0, size_t(width));
    }
    worker.barrier();
    const TokenRows x{p.codes, p.codes_stride, p.scales, p.scales_stride, sums, tail, p.tokens};
    int32_t* results = reinterpret_cast<int32_t*>(worker.scratch);
    int8_t* codes = reinterpret_cast<int8_t*>(results + 2 * kChunkBlocks * kSumsOfBlock);
    const OpenGroup group{codes, reinterpret_cast<float*>(codes + p.blocks * 512)};
    const int64_t groups = (p.rows + kGroup - 1) / kGroup, piece = most(1, groups / (worker.count * 8));
    configure_tiles(W::term == Term::halves ? 16 : 32);
    while (worker.claim(groups, piece, first, last))
        for (int64_t g = first; g < last; g++) {
            open_group<W>(p.weight + size_t(g) * W::group_bytes(p.blocks), p.blocks, p.tensor_scale, group);
            amx_group<W>(x, group, p.blocks, results, [&](int64_t t, F y) __attribute__((always_inline)) { p.write(t, g, y); });
        }
    _tile_release();
}
#endif

inline void multiply_blocks(const BlockProduct& p, Worker& worker) {
    if (p.tokens == 0) return;
    with_block_format(p.format, [&](auto f) {
        using W = decltype(f);
#if SAMEBITS_HAS_AMX
        if (p.tokens >= kAmxTokens && enable_amx()) return multiply_by_tiles<W>(p, worker);
#endif
        multiply_by_dots<W>(p, worker);
    });
}

}  // namespace samebits::SAMEBITS_ISA
