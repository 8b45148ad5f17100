// Block-quantized products on AMX int8 tiles: 16 tokens x 16 rows x 32 k an instruction.
//
// 16 tokens meet a chunk of 8 blocks: all its tiles first, then the float stage on their integer sums. Mixed
// they are slower: measured, 512-bit float operations run at half their rate next to tile instructions.
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

// Tile 0: sums; 1: tokens; 2: codes. `k` is how many k a product covers: 32, or 16 for halves.
inline void configure_tiles(int k) {
    TileConfig config;
    config.rows[0] = kTileTokens, config.row_bytes[0] = 64;
    config.rows[1] = kTileTokens, config.row_bytes[1] = uint16_t(k);
    config.rows[2] = uint8_t(k / 4), config.row_bytes[2] = 64;
    asm volatile("" ::"m"(config) : "memory");  // gcc 12 does not see that the instruction reads it
    _tile_loadconfig(&config);
}

// A group of 16 rows made ready: signed codes as tiles, scales as float32. Only what the format has is stored, so that
// a step's data stay in the first-level cache.
struct OpenGroup {
    int8_t* codes;  // [blocks][8][64]
    float* scales;  // [blocks][num_scales][16]: of d, m, sub, min
};

constexpr int kMostScales = 6;
template <class W>
constexpr int num_scales = W::term == Term::scale                                     ? 1
                           : W::term == Term::offset || W::term == Term::sub_scale    ? 2
                           : W::term == Term::halves                                  ? 3
                           : W::term == Term::super_offset                            ? 4
                                                                                      : kMostScales;

// Calls f with each of the scales that the format has, in the order in which they are stored.
template <class W, class Scales, class Fn>
INLINE void each_scale(Scales& s, Fn f) {
    f(s.d);
    if constexpr (has_offset(W::term)) f(s.m);
    if constexpr (W::has_e4m3) return f(s.e[0]), f(s.e[1]);
    if constexpr (W::term != Term::scale && W::term != Term::offset) f(s.sub[0]);
    if constexpr (is_halved(W::term)) f(s.sub[1]);
    if constexpr (has_offset(W::term) && W::term != Term::offset) f(s.min[0]);
    if constexpr (W::term == Term::halves_offset) f(s.min[1]);
}
template <class W>
INLINE void store_scales(const BlockScales& s, float* to) {
    each_scale<W>(s, [&](const F& x) __attribute__((always_inline)) { store(to, x), to += 16; });
}
template <class W>
INLINE BlockScales reload_scales(const float* from) {
    BlockScales s{};
    each_scale<W>(s, [&](F& x) __attribute__((always_inline)) { x = load(from), from += 16; });
    return s;
}

template <class W>
INLINE void open_group(const uint8_t* group, int64_t blocks, float tensor_scale, const OpenGroup& to) {
    const uint8_t* codes = group + W::scales_bytes(blocks);
    const __m512i bias = _mm512_set1_epi8(char(W::bias));
    for (int64_t b = 0; b < blocks; b++) {
        const uint8_t* from = codes + b * W::code_bytes;
        W::each(from, [&](int g, B w) __attribute__((always_inline)) {
            _mm512_store_si512(to.codes + b * 512 + 64 * g, _mm512_sub_epi8(w.v, bias));
        });
        const BlockScales s = load_scales<W>(W::scales_at(group, b), int(b % W::span), tensor_scale);
        store_scales<W>(s, to.scales + b * num_scales<W> * 16);
    }
}

// All tokens of a product in tiles of 16, the last one padded: for each tile and block 16 rows of 32 codes, and 16
// scales, and 16 sums of codes, of the blocks and of their lower halves, for formats with an offset.
struct TokenTiles {
    const int8_t* codes;  // [tiles][blocks][16][32]
    const float* scales;  // [tiles][blocks][16]
    const float *sums, *low_sums;  // likewise
    int64_t tokens;
};

// Products of a block, 1 or one for each half, and the int32 of each: 16 tokens x 16 rows.
template <class W>
constexpr int products_of_block = is_halved(W::term) ? 2 : 1;
constexpr int kTileSums = kTileTokens * 16;

// All products of a chunk. Sums are stored when the operands of the next product are on their way; more tiles than one
// of a kind were measured no faster, and slower on a busy machine.
template <class W>
INLINE void multiply_chunk(const int8_t* tokens, const int8_t* codes, int num_blocks, int32_t* sums) {
    constexpr int parts = products_of_block<W>;
    for (int i = 0; i < num_blocks * parts; i++, sums += kTileSums) {
        _tile_loadd(1, tokens + i / parts * 512 + i % parts * 16, 32);
        _tile_loadd(2, codes + i * (512 / parts), 64);
        if (i) _tile_stored(0, sums - kTileSums, 64);
        _tile_zero(0);
        _tile_dpbssd(0, 1, 2);
    }
    _tile_stored(0, sums - kTileSums, 64);
}

// The chunks of N tokens from t on: the terms of their blocks in order from +0.
template <class W, int N>
INLINE void chunks_of(const TokenTiles& x, const float* scales, int64_t at, int num_blocks, int t, const int32_t* sums,
                      F (&chunk)[N]) {
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) chunk[n] = zero();
    const int64_t first = at * kTileTokens + t;
#pragma GCC unroll 2
    for (int i = 0; i < num_blocks; i++) {
        const BlockScales s = reload_scales<W>(scales + i * num_scales<W> * 16);
        const int32_t* from = sums + i * products_of_block<W> * kTileSums + t * 16;
#pragma GCC unroll 4
        for (int n = 0; n < N; n++) {
            const int64_t token = first + i * kTileTokens + n;
            const I high = is_halved(W::term) ? load(from + n * 16 + kTileSums) : set(0);
            const float sum = has_offset(W::term) ? x.sums[token] : 0.0f;
            const float low_sum = W::term == Term::halves_offset ? x.low_sums[token] : 0.0f;
            chunk[n] = chunk[n] + term_of<W>(s, {load(from + n * 16), high, x.scales[token], sum, low_sum});
        }
    }
}

// 16 rows of the product for all tokens; write(token, 16 lanes) gets each result once. `next`, the group opened after
// this one, is asked for on the way, a piece at a time.
template <class W, class Write>
INLINE void amx_group(const TokenTiles& x, const OpenGroup& group, int64_t blocks, int32_t* sums, const uint8_t* next,
                      Write write) {
    constexpr int kQuad = 4;  // tokens that share the loads of a block's scales
    const int64_t num_quads = (x.tokens + kQuad - 1) / kQuad * ((blocks + kChunkBlocks - 1) / kChunkBlocks);
    const int64_t piece = int64_t(W::group_bytes(blocks)) / num_quads + 64;
    alignas(64) float totals[kTileTokens][16];
    for (int64_t start = 0; start < x.tokens; start += kTileTokens) {
        const int num_tokens = int(least(kTileTokens, x.tokens - start));
        for (int64_t block = 0; block < blocks; block += kChunkBlocks) {
            const int num_blocks = int(least(kChunkBlocks, blocks - block));
            const int64_t at = start / kTileTokens * blocks + block;
            multiply_chunk<W>(x.codes + at * 512, group.codes + block * 512, num_blocks, sums);
#pragma GCC unroll 1
            for (int t = 0; t < num_tokens; t += kQuad) {  // some of the last four may be padding: they are not written
                for (const uint8_t* end = next + piece; next < end; next += 64) prefetch(next);
                F chunk[kQuad];
                chunks_of<W, kQuad>(x, group.scales + block * num_scales<W> * 16, at, num_blocks, t, sums, chunk);
#pragma GCC unroll 4
                for (int n = 0; n < kQuad; n++) {
                    const F sum = (block ? load(totals[t + n]) : zero()) + chunk[n];
                    if (block + num_blocks < blocks) store(totals[t + n], sum);
                    else if (t + n < num_tokens) write(start + t + n, sum);
                }
            }
        }
    }
}

}  // namespace samebits::SAMEBITS_ISA
#endif
