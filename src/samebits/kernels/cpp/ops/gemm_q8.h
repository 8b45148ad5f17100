// Products of tokens in int8 blocks with block-quantized weights: units of 4 row groups are claimed by threads, tokens
// go in tiles by dot instructions or AMX, and what is done with the results is the caller's.
#pragma once
#include "gemm_amx.h"
#include "quantize.h"

namespace samebits::SAMEBITS_ISA {

// Tokens from which AMX tiles are faster than dot instructions; no effect on bits.
constexpr int64_t kAmxTokens = 20;
// Tokens that stay in the second-level cache while all rows pass by; a multiple of the tile.
constexpr int64_t kPartTokens = 128;
constexpr int kUnitGroups = 4, kUnitRows = kUnitGroups * kGroup;

// tokens in int8 blocks @ weight^T. A unit is 1 to 4 groups of 16 rows; `finish` gets its settled results, float32 [tokens][64],
// for tokens `first` on, in memory that only this thread touches.
struct BlockProduct {
    const int8_t* codes;
    int64_t codes_stride;
    const float* scales;
    int64_t scales_stride, tokens;  // strides in elements
    const uint8_t* weight;          // rows16
    Format format;
    int64_t rows, blocks;
    float tensor_scale;
    bool gated;    // a unit is 32 rows of the first half and the same 32 of the second, else rows one after another
    char* shared;  // product_scratch bytes for all threads, 64-byte aligned
    void* target;  // of `finish`
    void (*finish)(void* target, int64_t unit, int64_t first, int64_t tokens, const float* results);
    float* y = nullptr;  // or results go here, rows of y_stride, and nothing is left to finish
    int64_t y_stride = 0;
    int unit_groups = kUnitGroups;

    int64_t num_groups() const { return (rows + kGroup - 1) / kGroup; }
    int64_t num_units() const { return (num_groups() + unit_groups - 1) / unit_groups; }
    // Smaller units where there are few: no thread should wait long for the last one of another.
    void choose_units(int threads) {
        while (!gated && unit_groups > 1 && num_units() < 16 * threads) unit_groups /= 2;
    }
    int64_t group(int64_t unit, int i) const {  // beyond num_groups() where a unit has fewer
        if (!gated) return unit * unit_groups + i;
        return (i < 2 ? 0 : num_groups() / 2) + unit * 2 + i % 2;
    }
};

// Shared memory for the activations in the order that kernels read; per thread, an opened group with its sums, the
// blocks of one token, and the results of a unit.
inline Scratch product_scratch(int64_t tokens, int64_t blocks) {
    const size_t side_by_side = size_t(round_up(tokens, 8) * blocks) * (sizeof(TokenBlock<8>) / 8);
    const size_t in_tiles = size_t(round_up(tokens, 16) * blocks) * (kBlock + 4 + 4);
    const size_t opened = size_t(blocks) * (512 + 256) + kChunkBlocks * 512 * 4;
    return {opened + size_t(kPartTokens) * kUnitRows * 4, side_by_side > in_tiles ? side_by_side : in_tiles};
}

// Tiles of kTile tokens, then of 4, 2 and 1: f(first token, its blocks) for each.
template <class Fn>
INLINE void each_tile(int64_t tokens, int64_t blocks, char* memory, Fn f) {
    int64_t t = 0;
    for (; t + kTile <= tokens; t += kTile) f(t, reinterpret_cast<TokenBlock<kTile>*>(memory) + t / kTile * blocks);
    char* rest = memory + size_t(t / kTile * blocks) * sizeof(TokenBlock<kTile>);
    if (kTile > 4 && t + 4 <= tokens) {
        f(t, reinterpret_cast<TokenBlock<4>*>(rest));
        rest += size_t(blocks) * sizeof(TokenBlock<4>);
        t += 4;
    }
    if (kTile > 2 && t + 2 <= tokens) {
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

// Units of the product for parts of the tokens; multiply(group's bytes, part's first token, tokens, to, stride) puts
// row r of token t at to + stride t + r. A thread goes through a stretch of its own, which memory delivers best, and
// then helps others.
template <class Multiply>
INLINE void each_unit(const BlockProduct& p, size_t group_stride, float* results, Worker& worker, Multiply multiply) {
    const int64_t units = p.num_units(), parts = (p.tokens + kPartTokens - 1) / kPartTokens, groups = p.num_groups();
    for (int64_t i; worker.claim_near(units * parts, i);) {
        const int64_t unit = i % units, start = i / units * kPartTokens, tokens = least(kPartTokens, p.tokens - start);
        for (int j = 0; j < p.unit_groups; j++) {
            const int64_t g = p.group(unit, j);
            float* to = p.y ? p.y + start * p.y_stride + g * kGroup : results + j * kGroup;
            const int64_t stride = p.y ? p.y_stride : kUnitRows;
            if (g < groups) multiply(p.weight + size_t(g) * group_stride, start, tokens, to, stride);
        }
        if (!p.y) p.finish(p.target, unit, start, tokens, results);
    }
}

template <class W>
void multiply_by_dots(const BlockProduct& p, Worker& worker) {
    const bool alone = p.tokens <= 1;  // a barrier costs more than one token's blocks
    float* results = reinterpret_cast<float*>(worker.scratch);
    char* memory = alone ? worker.scratch + kPartTokens * kUnitRows * 4 : p.shared;
    const size_t part_bytes = size_t(kPartTokens / 8 * p.blocks) * sizeof(TokenBlock<8>);
    int64_t first = 0, last = p.blocks;
    bool fine = true;
    if (!alone) worker.share(p.blocks, first, last);
    each_tile(p.tokens, p.blocks, memory, [&](int64_t t, auto* x) {
        constexpr int T = tile_tokens(decltype(x)(nullptr));
        fine &= fill_token_blocks<W, T>(p.codes + t * p.codes_stride, p.codes_stride, p.scales + t * p.scales_stride,
                                        p.scales_stride, first, last, x);
    });
    if (!fine) worker.fail(kNotQuantized);
    if (!alone) worker.barrier();
    each_unit(p, W::group_bytes(p.blocks), results, worker, [&](const uint8_t* group, int64_t start, int64_t tokens,
                                                                float* to, int64_t stride) {
        char* part = memory + size_t(start / kPartTokens) * part_bytes;
        each_tile(tokens, p.blocks, part, [&](int64_t t, auto* x) __attribute__((always_inline)) {
            constexpr int T = tile_tokens(decltype(x)(nullptr));
            F total[T];
            tile_product<W, T>(group, p.blocks, p.tensor_scale, x, total);
#pragma GCC unroll 8
            for (int i = 0; i < T; i++) store(to + (t + i) * stride, settle(total[i]));
        });
    });
}

#if SAMEBITS_HAS_AMX
// The codes of a block added: as bytes above -128, which one instruction sums.
INLINE float sum_of_codes(const int8_t* codes) {
    const __m256i raised = _mm256_xor_si256(_mm256_loadu_si256((const __m256i*)codes), _mm256_set1_epi8(-128));
    const __m256i quarters = _mm256_sad_epu8(raised, _mm256_setzero_si256());
    const __m128i halves = _mm_add_epi64(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1));
    return float(int(_mm_cvtsi128_si64(halves) + _mm_extract_epi64(halves, 1)) - kBias8 * kBlock);
}

// Tokens first .. last - 1 into their tile, those beyond the product are zeros; false as with fill_token_blocks.
INLINE bool fill_tiles(const BlockProduct& p, int64_t first, int64_t last, int8_t* codes, float* scales, float* sums) {
    bool fine = true;
    for (int64_t t = first; t < last; t++)
        for (int64_t b = 0; b < p.blocks; b++) {
            const int64_t at = (t / kTileTokens * p.blocks + b) * kTileTokens + t % kTileTokens;
            const int8_t* from = p.codes + t * p.codes_stride + b * kBlock;
            if (t < p.tokens) memcpy(codes + at * kBlock, from, kBlock);
            else memset(codes + at * kBlock, 0, kBlock);
            scales[at] = t < p.tokens ? p.scales[t * p.scales_stride + b] : 0.0f;
            sums[at] = t < p.tokens ? sum_of_codes(from) : 0.0f;
            if (t < p.tokens) fine &= is_quantized(from, scales[at]);
        }
    return fine;
}

template <class W>
void multiply_by_tiles(const BlockProduct& p, Worker& worker) {
    const int64_t padded = round_up(p.tokens, kTileTokens);
    int8_t* codes = reinterpret_cast<int8_t*>(p.shared);
    float* scales = reinterpret_cast<float*>(codes + padded * p.blocks * kBlock);
    float* sums = scales + padded * p.blocks;
    int64_t first, last;
    worker.share(padded, first, last);
    if (!fill_tiles(p, first, last, codes, scales, sums)) worker.fail(kNotQuantized);
    worker.barrier();
    float* results = reinterpret_cast<float*>(worker.scratch);
    int32_t* products = reinterpret_cast<int32_t*>(results + kPartTokens * kUnitRows);
    int8_t* opened = reinterpret_cast<int8_t*>(products + kChunkBlocks * products_of_block<W> * kTileSums);
    const OpenGroup open{opened, reinterpret_cast<float*>(opened + p.blocks * 512)};
    configure_tiles(W::term == Term::halves ? 16 : 32);
    each_unit(p, W::group_bytes(p.blocks), results, worker, [&](const uint8_t* group, int64_t start, int64_t tokens,
                                                                float* to, int64_t stride) {
        const int64_t at = start * p.blocks;
        const TokenTiles x{codes + at * kBlock, scales + at, sums + at, tokens};
        open_group<W>(group, p.blocks, p.tensor_scale, open);
        const uint8_t* next = group + W::group_bytes(p.blocks);
        amx_group<W>(x, open, p.blocks, products, next, [&](int64_t t, F y) __attribute__((always_inline)) {
            store(to + t * stride, settle(y));
        });
    });
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

// A target for `finish`: rows of y, and a bias that is added last.
struct PlainResult {
    float* y;
    int64_t y_stride, rows;
    const float* bias;  // or null
    int unit_groups;

    static void finish(void* target, int64_t unit, int64_t first, int64_t tokens, const float* results) {
        const PlainResult& to = *static_cast<PlainResult*>(target);
        const int64_t row = unit * to.unit_groups * kGroup, count = least(to.unit_groups * kGroup, to.rows - row);
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t i = 0; i < count; i += kGroup) {
                const int n = int(least(kGroup, count - i));
                F x = load(results + t * kUnitRows + i);
                if (to.bias) x = settle(x + load_partial(to.bias + row + i, n));
                store_partial(to.y + (first + t) * to.y_stride + row + i, x, n);
            }
    }
};

// Another: the rows are gate and up projections; silu(gate) * up goes out in int8 blocks, one of them a unit.
struct GatedResult {
    int8_t* codes;
    int64_t codes_stride;
    float* scales;
    int64_t scales_stride;
    bool refused;

    static void finish(void* target, int64_t unit, int64_t first, int64_t tokens, const float* results) {
        GatedResult& to = *static_cast<GatedResult*>(target);
        constexpr int kBatch = 16;  // tokens whose blocks are quantized together
        alignas(64) float x[kBatch * kBlock], scales[kBatch];
        int8_t codes[kBatch * kBlock];
        for (int64_t t = 0; t < tokens; t += kBatch) {
            const int count = int(least(kBatch, tokens - t));
            for (int i = 0; i < count; i++) {
                const float* row = results + (t + i) * kUnitRows;
#pragma GCC unroll 2
                for (int j = 0; j < kBlock; j += 16) {
                    const F gate = load(row + j);
                    store(x + i * kBlock + j, settle((gate * sigmoid(gate)) * load(row + kBlock + j)));
                }
            }
            to.refused |= !quantize_blocks(x, count, codes, scales);
            for (int i = 0; i < count; i++) {
                memcpy(to.codes + (first + t + i) * to.codes_stride + unit * kBlock, codes + i * kBlock, kBlock);
                to.scales[(first + t + i) * to.scales_stride + unit] = scales[i];
            }
        }
    }
};

}  // namespace samebits::SAMEBITS_ISA
