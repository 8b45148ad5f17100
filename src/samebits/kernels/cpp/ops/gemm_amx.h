// Block-quantized products on AMX int8 tiles: 16 tokens x 16 rows x 32 k an instruction.
//
// A step is 16 tokens against 8 blocks. While the tiles of one step are multiplied, the float stage works on the
// integer sums of the step before: the matrix unit and the vector ports are busy together.
#pragma once
#include "gemm_vnni.h"

#if defined(SAMEBITS_USE_AVX512) && defined(__AMX_INT8__)
#define SAMEBITS_HAS_AMX 1
#include "../runtime/amx.h"

namespace samebits::SAMEBITS_ISA {

constexpr int kTileTokens = 16;

struct alignas(64) TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};

// Tiles 0, 1: sums; 2, 3: tokens; 4, 5: codes. `k` is how many k a product covers: 32, or 16 for halves.
inline void configure_tiles(int k) {
    TileConfig config;
    for (int i = 0; i < 2; i++) {
        config.rows[i] = kTileTokens, config.row_bytes[i] = 64;
        config.rows[2 + i] = kTileTokens, config.row_bytes[2 + i] = uint16_t(k);
        config.rows[4 + i] = uint8_t(k / 4), config.row_bytes[4 + i] = 64;
    }
    asm volatile("" ::"m"(config) : "memory");  // gcc 12 does not see that the instruction reads it
    _tile_loadconfig(&config);
}

// A group of 16 rows made ready: signed codes as tiles, scales as float32.
struct OpenGroup {
    int8_t* codes;  // [blocks][8][64]
    float* scales;  // [blocks][4][16]: d, m, sub, min as in BlockScales
};

inline size_t open_group_bytes(int64_t blocks) { return size_t(blocks) * (512 + 256); }

template <class W>
INLINE void open_group(const uint8_t* group, int64_t blocks, float tensor_scale, const OpenGroup& to) {
    const uint8_t* codes = group + W::scales_bytes(blocks);
    const __m512i bias = _mm512_set1_epi8(char(W::bias));
    for (int64_t b = 0; b < blocks; b++) {
        const uint8_t* from = codes + b * W::code_bytes;
        for (int i = 0; i < W::code_bytes; i += 64) prefetch(from + 4096 + i);
        W::each(from, [&](int g, B w) __attribute__((always_inline)) {
            _mm512_store_si512(to.codes + b * 512 + 64 * g, _mm512_sub_epi8(w.v, bias));
        });
        const BlockScales s = load_scales<W>(W::scales_at(group, b), int(b % W::span), tensor_scale);
        float* scales = to.scales + b * 64;
        store(scales, s.d);
        if constexpr (W::term == Term::offset || W::term == Term::super_offset) store(scales + 16, s.m);
        if constexpr (W::term == Term::halves || W::term == Term::super_offset) {
            store(scales + 32, s.sub);
            store(scales + 48, s.min);
        }
    }
}

// All tokens of a product, a row each: codes, scales and, for offsets, the sums of codes.
struct TokenRows {
    const int8_t* codes;
    int64_t codes_stride;
    const float* scales;
    int64_t scales_stride;
    const float* sums;  // [tokens][blocks]
    const int8_t* tail;  // codes of the last tokens, padded to 16 rows of `blocks` blocks
    int64_t tokens;
};

// One product in two sets of tiles, so that the next can begin before the last is stored. The numbers of tiles must be
// literals: the intrinsics paste them into the instruction.
#define SAMEBITS_MULTIPLY_TILES(name, SUMS, TOKENS, CODES)                                             \
    INLINE void name(const int8_t* tokens, int64_t stride, const int8_t* codes, int32_t* sums) { \
        _tile_zero(SUMS);                                                                              \
        _tile_loadd(TOKENS, tokens, stride);                                                           \
        _tile_loadd(CODES, codes, 64);                                                                 \
        _tile_dpbssd(SUMS, TOKENS, CODES);                                                             \
        _tile_stored(SUMS, sums, 64);                                                                  \
    }
SAMEBITS_MULTIPLY_TILES(multiply_even, 0, 2, 4)
SAMEBITS_MULTIPLY_TILES(multiply_odd, 1, 3, 5)
#undef SAMEBITS_MULTIPLY_TILES

constexpr int kSumsOfBlock = 2 * kTileTokens * 16;  // room for both halves

// One step's place: which tokens, which blocks.
struct Step {
    int64_t token, block;
    int num_tokens, num_blocks;
};

template <class W>
INLINE void multiply_block(const TokenRows& x, const OpenGroup& group, int64_t blocks, const Step& at, int i, int32_t* sums) {
    const int64_t b = at.block + i;
    const bool whole = at.num_tokens == kTileTokens;
    const int64_t stride = whole ? x.codes_stride : blocks * kBlock;
    const int8_t* tokens = (whole ? x.codes + at.token * x.codes_stride : x.tail) + b * kBlock;
    const int8_t* codes = group.codes + b * 512;
    int32_t* to = sums + i * kSumsOfBlock;
    if constexpr (W::term == Term::halves) {
        multiply_even(tokens, stride, codes, to);
        multiply_odd(tokens + 16, stride, codes + 256, to + kTileTokens * 16);
    } else if (i % 2 == 0) {
        multiply_even(tokens, stride, codes, to);
    } else {
        multiply_odd(tokens, stride, codes, to);
    }
}

// The chunk of one token: the terms of a step's blocks in order from +0.
template <class W>
INLINE F chunk_of(const TokenRows& x, const OpenGroup& group, int64_t blocks, const Step& at, int t, const int32_t* sums) {
    const int64_t token = at.token + t;
    const float* scales = x.scales + token * x.scales_stride + at.block;
    const float* asums = x.sums + token * blocks + at.block;
    F chunk = zero();
    for (int i = 0; i < at.num_blocks; i++) {
        const float* s = group.scales + (at.block + i) * 64;
        const int32_t* from = sums + i * kSumsOfBlock + t * 16;
        const BlockScales b{load(s), load(s + 16), load(s + 32), load(s + 48)};
        chunk = chunk + term_of<W>(b, load(from), load(from + kTileTokens * 16), scales[i],
                                   W::term == Term::offset || W::term == Term::super_offset ? asums[i] : 0.0f);
    }
    return chunk;
}

// 16 rows of the product for all tokens; write(token, 16 lanes) gets each result once.
template <class W, class Write>
INLINE void amx_group(const TokenRows& x, const OpenGroup& group, int64_t blocks, int32_t* sums, Write write) {
    alignas(64) float totals[kTileTokens][16];
    const int64_t chunks = (blocks + kChunkBlocks - 1) / kChunkBlocks;
    const int64_t tiles = (x.tokens + kTileTokens - 1) / kTileTokens, steps = tiles * chunks;
    Step before{};
    for (int64_t s = 0; s <= steps; s++) {
        Step now{};
        if (s < steps) {
            now.token = s / chunks * kTileTokens;
            now.block = s % chunks * kChunkBlocks;
            now.num_tokens = int(least(kTileTokens, x.tokens - now.token));
            now.num_blocks = int(least(kChunkBlocks, blocks - now.block));
        }
        int32_t* sums_now = sums + (s & 1) * kChunkBlocks * kSumsOfBlock;
        const int32_t* sums_before = sums + (~s & 1) * kChunkBlocks * kSumsOfBlock;
#pragma GCC unroll 8
        for (int i = 0; i < kChunkBlocks; i++) {
            if (i < now.num_blocks) multiply_block<W>(x, group, blocks, now, i, sums_now);
            for (int t = 2 * i; t < 2 * i + 2 && t < before.num_tokens; t++) {
                const F chunk = chunk_of<W>(x, group, blocks, before, t, sums_before);
                const F total = (before.block ? load(totals[t]) : zero()) + chunk;
                if (before.block + before.num_blocks == blocks) write(before.token + t, total);
                else store(totals[t], total);
            }
        }
        before = now;
    }
}

}  // namespace samebits::SAMEBITS_ISA
#endif
