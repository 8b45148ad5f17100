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

// A group of 16 rows made ready: signed codes as tiles, scales as float32. Only what the format has is stored, so that
// a step's data stay in the first-level cache.
struct OpenGroup {
    int8_t* codes;  // [blocks][8][64]
    float* scales;  // [blocks][num_scales][16]: of d, m, sub, min
};

template <class W>
constexpr int num_scales = W::term == Term::scale ? 1 : W::term == Term::offset ? 2 : W::term == Term::halves ? 3 : 4;

template <class W>
INLINE void store_scales(const BlockScales& s, float* to) {
    store(to, s.d);
    if constexpr (W::term == Term::offset) store(to + 16, s.m);
    if constexpr (W::term == Term::halves) store(to + 16, s.sub), store(to + 32, s.min);
    if constexpr (W::term == Term::super_offset) store(to + 16, s.m), store(to + 32, s.sub), store(to + 48, s.min);
}
template <class W>
INLINE BlockScales reload_scales(const float* from) {
    BlockScales s{};
    s.d = load(from);
    if constexpr (W::term == Term::offset) s.m = load(from + 16);
    if constexpr (W::term == Term::halves) s.sub = load(from + 16), s.min = load(from + 32);
    if constexpr (W::term == Term::super_offset) s.m = load(from + 16), s.sub = load(from + 32), s.min = load(from + 48);
    return s;
}

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
        store_scales<W>(s, to.scales + b * num_scales<W> * 16);
    }
}

// All tokens of a product in tiles of 16, the last one padded: for each tile and block 16 rows of 32 codes, and 16
// scales, and 16 sums of codes for formats with an offset.
struct TokenTiles {
    const int8_t* codes;  // [tiles][blocks][16][32]
    const float* scales;  // [tiles][blocks][16]
    const float* sums;    // likewise
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

// int32 results of a block: 16 tokens x 16 rows, twice where halves are summed apart.
template <class W>
constexpr int sums_of_block = (W::term == Term::halves ? 2 : 1) * kTileTokens * 16;

// One step's place: a tile of tokens, and up to 8 blocks from `block` on.
struct Step {
    int64_t tile, block;
    int num_tokens, num_blocks;
};

// Blocks i and i + 1 of a step, the second only where there is one.
template <class W>
INLINE void multiply_two(const int8_t* tokens, const int8_t* codes, int i, int num_blocks, int32_t* sums) {
#pragma GCC unroll 2
    for (int j = i; j < i + 2; j++) {
        if (j >= num_blocks) return;
        const int8_t *x = tokens + j * 512, *w = codes + j * 512;
        int32_t* to = sums + j * sums_of_block<W>;
        if constexpr (W::term == Term::halves) {
            multiply_even(x, 32, w, to);
            multiply_odd(x + 16, 32, w + 256, to + kTileTokens * 16);
        } else if (j == i) {
            multiply_even(x, 32, w, to);
        } else {
            multiply_odd(x, 32, w, to);
        }
    }
}

// The chunks of N tokens from t on: the terms of a step's blocks in order from +0.
template <class W, int N>
INLINE void chunks_of(const TokenTiles& x, const float* scales, int64_t at, int num_blocks, int t, const int32_t* sums,
                      F (&chunk)[N]) {
    constexpr bool has_offset = W::term == Term::offset || W::term == Term::super_offset;
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) chunk[n] = zero();
    const float *token_scales = x.scales + at * kTileTokens + t, *token_sums = x.sums + at * kTileTokens + t;
#pragma GCC unroll 2
    for (int i = 0; i < num_blocks; i++) {
        const BlockScales s = reload_scales<W>(scales + i * num_scales<W> * 16);
        const int32_t* from = sums + i * sums_of_block<W> + t * 16;
#pragma GCC unroll 4
        for (int n = 0; n < N; n++) {
            const I high = W::term == Term::halves ? load(from + (n + kTileTokens) * 16) : set(0);
            const float sum = has_offset ? token_sums[i * kTileTokens + n] : 0.0f;
            chunk[n] = chunk[n] + term_of<W>(s, load(from + n * 16), high, token_scales[i * kTileTokens + n], sum);
        }
    }
}

// Steps in order: 4 tiles of tokens against the same 8 blocks, so that these stay in the first-level cache, then the
// next 8 blocks, then the next 4 tiles.
struct Walk {
    static constexpr int64_t kTiles = 4;
    int64_t tokens, blocks, first_tile = 0, tile = 0, block = 0;

    int64_t num_tiles() const { return (tokens + kTileTokens - 1) / kTileTokens; }
    Step step() const {
        if (tile >= num_tiles()) return {};
        return {tile, block, int(least(kTileTokens, tokens - tile * kTileTokens)), int(least(kChunkBlocks, blocks - block))};
    }
    void advance() {
        if (++tile < least(first_tile + kTiles, num_tiles())) return;
        block += kChunkBlocks;
        if (block >= blocks) block = 0, first_tile += kTiles;
        tile = first_tile;
    }
};

// 16 rows of the product for all tokens; write(token, 16 lanes) gets each result once.
template <class W, class Write>
INLINE void amx_group(const TokenTiles& x, const OpenGroup& group, int64_t blocks, int32_t* sums, Write write) {
    constexpr int kQuad = 4;  // tokens that share the loads of a block's scales
    alignas(64) float totals[Walk::kTiles * kTileTokens][16];
    Walk walk{x.tokens, blocks};
    Step before{};
    for (int64_t s = 0; s == 0 || before.num_tokens; s++, walk.advance()) {
        const Step now = walk.step();
        const int8_t* tokens = x.codes + (now.tile * blocks + now.block) * 512;
        const int8_t* codes = group.codes + now.block * 512;
        int32_t* sums_now = sums + (s & 1) * kChunkBlocks * sums_of_block<W>;
        const int32_t* sums_before = sums + (~s & 1) * kChunkBlocks * sums_of_block<W>;
        const float* scales = group.scales + before.block * num_scales<W> * 16;
        const int64_t at = before.tile * blocks + before.block;
        float(*total)[16] = totals + before.tile % Walk::kTiles * kTileTokens;
        const bool ends = before.block + before.num_blocks == blocks;
#pragma GCC unroll 1  // the loop must fit the cache of decoded instructions
        for (int i = 0; i < kChunkBlocks; i += 2) {
            multiply_two<W>(tokens, codes, i, now.num_blocks, sums_now);
            const int t = 2 * i;
            if (t >= before.num_tokens) continue;  // others of the last four may be padding: they are not written
            F chunk[kQuad];
            chunks_of<W, kQuad>(x, scales, at, before.num_blocks, t, sums_before, chunk);
#pragma GCC unroll 4
            for (int n = 0; n < kQuad; n++) {
                const F sum = (before.block ? load(total[t + n]) : zero()) + chunk[n];
                if (!ends) store(total[t + n], sum);
                else if (t + n < before.num_tokens) write(before.tile * kTileTokens + t + n, sum);
            }
        }
        before = now;
    }
}

}  // namespace samebits::SAMEBITS_ISA
#endif
