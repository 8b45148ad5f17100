// gemm_q8, and gemm on block-quantized weights: rows16 groups are claimed by threads, tokens go in tiles.
#pragma once
#include "gemm_amx.h"

namespace samebits::SAMEBITS_ISA {

// Tokens from which AMX tiles are faster than dot instructions; no effect on bits.
constexpr int64_t kAmxTokens = 8;

// Tokens that stay in the second-level cache while all rows pass by; a multiple of the tile.
constexpr int64_t kPartTokens = 128;

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

// Shared memory for the activations in the order that kernels read; per thread, an opened group and its sums.
inline Scratch product_scratch(int64_t tokens, int64_t blocks) {
    const size_t side_by_side = size_t(round_up(tokens, 8) * blocks) * (sizeof(TokenBlock<8>) / 8);
    const size_t in_tiles = size_t(round_up(tokens, 16) * blocks) * (kBlock + 4 + 4);
    const size_t opened = size_t(blocks) * (512 + 256) + 2 * kChunkBlocks * 512 * 4;
    return {opened, side_by_side > in_tiles ? side_by_side : in_tiles};
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
// Tokens first .. last - 1 into their tile; those beyond the product are zeros.
INLINE void fill_tiles(const BlockProduct& p, int64_t first, int64_t last, int8_t* codes, float* scales, float* sums) {
    for (int64_t t = first; t < last; t++)
        for (int64_t b = 0; b < p.blocks; b++) {
            const int64_t at = (t / kTileTokens * p.blocks + b) * kTileTokens + t % kTileTokens;
            int8_t* to = codes + at * kBlock;
            if (t < p.tokens) memcpy(to, p.codes + t * p.codes_stride + b * kBlock, kBlock);
            else memset(to, 0, kBlock);
            scales[at] = t < p.tokens ? p.scales[t * p.scales_stride + b] : 0.0f;
            int sum = 0;
            for (int k = 0; k < kBlock; k++) sum += to[k];
            sums[at] = float(sum);
        }
}

template <class W>
void multiply_by_tiles(const BlockProduct& p, Worker& worker) {
    const int64_t padded = round_up(p.tokens, kTileTokens);
    int8_t* codes = reinterpret_cast<int8_t*>(p.shared);
    float* scales = reinterpret_cast<float*>(codes + padded * p.blocks * kBlock);
    float* sums = scales + padded * p.blocks;
    int64_t first, last;
    worker.share(padded, first, last);
    fill_tiles(p, first, last, codes, scales, sums);
    worker.barrier();
    int32_t* results = reinterpret_cast<int32_t*>(worker.scratch);
    int8_t* opened = reinterpret_cast<int8_t*>(results + 2 * kChunkBlocks * sums_of_block<W>);
    const OpenGroup group{opened, reinterpret_cast<float*>(opened + p.blocks * 512)};
    const int64_t groups = (p.rows + kGroup - 1) / kGroup, parts = (p.tokens + kPartTokens - 1) / kPartTokens;
    configure_tiles(W::term == Term::halves ? 16 : 32);
    while (worker.claim(groups * parts, most(1, groups / (worker.count * 8)), first, last))
        for (int64_t i = first; i < last; i++) {
            const int64_t g = i % groups, start = i / groups * kPartTokens, at = start * p.blocks;
            const TokenTiles x{codes + at * kBlock, scales + at, sums + at, least(kPartTokens, p.tokens - start)};
            open_group<W>(p.weight + size_t(g) * W::group_bytes(p.blocks), p.blocks, p.tensor_scale, group);
            amx_group<W>(x, group, p.blocks, results, [&](int64_t t, F y) __attribute__((always_inline)) {
                p.write(start + t, g, y);
            });
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
