// Products of tokens in int8 blocks with block-quantized weights: units of 4 row groups are claimed by threads, tokens
// go in tiles by dot instructions or AMX, and what is done with the results is the caller's.
#pragma once
#include "gemm_amx.h"
#include "gemm_mmla.h"
#include "segments.h"

namespace samebits::SAMEBITS_ISA {

// Tokens of a part from which AMX tiles are faster than dot instructions; no effect on bits.
constexpr int64_t kAmxTokens = 20;
// Tokens up to which a thread makes those it comes to ready for itself, where segments are many: a barrier costs more.
constexpr int64_t kFewTokens = 16;
// Tokens of a part from which a group's codes are paired for the matrix unit; until kFewTokens they may lie in its room.
[[maybe_unused]] constexpr int64_t kPairTokens = 17;
static_assert(kPairTokens > kFewTokens, "codes and tokens take the same room");
constexpr int kUnitGroups = 4, kUnitRows = kUnitGroups * kGroup;

// tokens in int8 blocks @ weight^T. A unit is 1 to 4 groups of 16 rows; `finish` gets its settled results, float32 [tokens][64],
// for a part of the tokens, in memory that only this thread touches.
struct BlockProduct {
    Segments segments;
    const int8_t* codes;
    int64_t codes_stride;
    const float* scales;
    int64_t scales_stride;  // strides in elements
    const uint8_t* weight;  // matrices in rows16, one after another
    Format format;
    int64_t rows, blocks;
    float tensor_scale;
    bool gated;    // a unit is 32 rows of the first half and the same 32 of the second, else rows one after another
    char* shared;  // product_scratch bytes for all threads, 64-byte aligned
    void* target;  // of `finish`
    void (*finish)(void* target, int64_t unit, const Part& part, const float* results);
    float* y = nullptr;  // or results go here, rows of y_stride, and nothing is left to finish
    int64_t y_stride = 0;
    int unit_groups = kUnitGroups;

    int64_t num_groups() const { return (rows + kGroup - 1) / kGroup; }
    int64_t num_units() const { return (num_groups() + unit_groups - 1) / unit_groups; }
    // Smaller units where there are few: no thread should wait long for the last one of another.
    void choose_units(int threads) {
        const int64_t products = most(1, segments.num_used());
        while (!gated && unit_groups > 1 && products * num_units() < 16 * threads) unit_groups /= 2;
    }
    int64_t group(int64_t unit, int i) const {  // beyond num_groups() where a unit has fewer
        if (!gated) return unit * unit_groups + i;
        return (i < 2 ? 0 : num_groups() / 2) + unit * 2 + i % 2;
    }
    INLINE TokenRow token(int64_t place) const {
        const int64_t row = segments.x_row(place);
        return {codes + row * codes_stride, scales + row * scales_stride};
    }
    // Where the results of the token at a place go, of group g, which is number i of its unit.
    INLINE float* target_of(const Part& part, int64_t t, int64_t g, int i, float* results) const {
        return y ? y + segments.y_row(part.first + t) * y_stride + g * kGroup : results + t * kUnitRows + i * kGroup;
    }
};

// Bytes of a token's block as kernels read it: side by side with others, and in AMX tiles with its scale and sum.
constexpr int64_t kTokenBlockBytes = sizeof(TokenBlock<8>) / 8;
static_assert(kTokenBlockBytes * 8 == sizeof(TokenBlock<8>) && kTokenBlockBytes == sizeof(TokenBlock<1>), "no padding");
static_assert(kTokenBlockBytes >= kBlock + 4 + 4 + 4, "tiles fit the same room");

// Shared memory for the activations in the order that kernels read; per thread, the results of a unit, then an opened
// group with its sums, or a few tokens.
inline Scratch product_scratch(int64_t tokens, int64_t num_segments, int64_t blocks) {
    constexpr int64_t group_bytes = 512 + 6 * 16 * 4;  // codes, and the scales of the format that has most
    const int64_t block_bytes = most(group_bytes, kFewTokens * kTokenBlockBytes);
    const size_t opened = size_t(blocks * block_bytes) + kChunkBlocks * 512 * 4;
    return {opened + size_t(kPartTokens) * kUnitRows * 4,
            size_t(tokens_of_room(tokens, num_segments) * blocks * kTokenBlockBytes)};
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

// Blocks first .. last - 1 of a part's tokens into memory, tile after tile; false as with fill_token_blocks.
template <class W>
bool fill_dots(const BlockProduct& p, const Part& part, int64_t first, int64_t last, char* memory) {
    bool fine = true;
    each_tile(part.tokens, p.blocks, memory, [&](int64_t t, auto* x) {
        constexpr int T = tile_tokens(decltype(x)(nullptr));
        TokenRow rows[T];
        for (int i = 0; i < T; i++) rows[i] = p.token(part.first + t + i);
        fine &= fill_token_blocks<W, T>(rows, first, last, x);
    });
    return fine;
}

// Group g of a matrix, number i of its unit, for all tokens of a part. `room` is for the codes as another unit takes them.
template <class W>
INLINE void dots_group(const BlockProduct& p, const Part& part, const uint8_t* group, int64_t g, int i, char* memory,
                       [[maybe_unused]] char* room, float* results) {
    const uint8_t* codes = group + W::scales_bytes(p.blocks);
#if SAMEBITS_HAS_MMLA
    int8_t* paired = part.tokens >= kPairTokens ? reinterpret_cast<int8_t*>(room) : nullptr;
    if (paired) pair_codes<W>(codes, p.blocks, paired);
#endif
    each_tile(part.tokens, p.blocks, memory, [&](int64_t t, auto* x) __attribute__((always_inline)) {
        constexpr int T = tile_tokens(decltype(x)(nullptr));
        F total[T];
        const auto by_dots = [&](int64_t b, I(&low)[T], I(&high)[T]) __attribute__((always_inline)) {
            dots<W, T>(codes + b * W::code_bytes, x[b], low, high);
        };
#if SAMEBITS_HAS_MMLA
        if constexpr (T >= kMmlaTokens) {
            const auto by_pairs = [&](int64_t b, I(&low)[T], I(&high)[T]) __attribute__((always_inline)) {
                paired_dots<W, T>(paired + b * kPairedBytes, x[b], low, high);
            };
            if (paired) tile_product<W, T>(group, p.blocks, p.tensor_scale, x, total, by_pairs);
            else tile_product<W, T>(group, p.blocks, p.tensor_scale, x, total, by_dots);
        } else
#endif
            tile_product<W, T>(group, p.blocks, p.tensor_scale, x, total, by_dots);
#pragma GCC unroll 8
        for (int n = 0; n < T; n++) store(p.target_of(part, t + n, g, i, results), settle(total[n]));
    });
}

#if SAMEBITS_HAS_AMX
// Half the codes of a block added: as bytes above -128, which one instruction sums.
INLINE float sum_of_half(const int8_t* codes) {
    const __m128i raised = _mm_xor_si128(_mm_loadu_si128((const __m128i*)codes), _mm_set1_epi8(-128));
    const __m128i quarters = _mm_sad_epu8(raised, _mm_setzero_si128());
    return float(int(_mm_cvtsi128_si64(quarters) + _mm_extract_epi64(quarters, 1)) - kBias8 * kBlock / 2);
}

// A part's tokens in memory: codes of all tiles, then scales, then sums, of blocks and of their lower halves.
struct FilledTiles {
    int8_t* codes;
    float *scales, *sums, *low_sums;
    FilledTiles(const BlockProduct& p, const Part& part, char* memory) {
        const int64_t padded = round_up(part.tokens, kTileTokens) * p.blocks;
        codes = reinterpret_cast<int8_t*>(memory);
        scales = reinterpret_cast<float*>(codes + padded * kBlock);
        sums = scales + padded;
        low_sums = sums + padded;
    }
};

// Tokens first .. last - 1 of a part into their tiles, those beyond it are zeros; false as with fill_token_blocks.
INLINE bool fill_tiles(const BlockProduct& p, const Part& part, int64_t first, int64_t last, char* memory) {
    const FilledTiles to(p, part, memory);
    bool fine = true;
    for (int64_t t = first; t < last; t++) {
        const bool given = t < part.tokens;
        const TokenRow row = given ? p.token(part.first + t) : TokenRow{};
        for (int64_t b = 0; b < p.blocks; b++) {
            const int64_t at = (t / kTileTokens * p.blocks + b) * kTileTokens + t % kTileTokens;
            if (given) memcpy(to.codes + at * kBlock, row.codes + b * kBlock, kBlock);
            else memset(to.codes + at * kBlock, 0, kBlock);
            to.scales[at] = given ? row.scales[b] : 0.0f;
            to.low_sums[at] = given ? sum_of_half(row.codes + b * kBlock) : 0.0f;
            to.sums[at] = given ? to.low_sums[at] + sum_of_half(row.codes + b * kBlock + kBlock / 2) : 0.0f;
            if (given) fine &= is_quantized(row.codes + b * kBlock, row.scales[b]);
        }
    }
    return fine;
}

// As dots_group, by tiles.
template <class W>
INLINE void tiles_group(const BlockProduct& p, const Part& part, const uint8_t* group, int64_t g, int i, char* memory,
                        float* results) {
    int32_t* products = reinterpret_cast<int32_t*>(results + kPartTokens * kUnitRows);
    int8_t* opened = reinterpret_cast<int8_t*>(products + kChunkBlocks * products_of_block<W> * kTileSums);
    const OpenGroup open{opened, reinterpret_cast<float*>(opened + p.blocks * 512)};
    const FilledTiles from(p, part, memory);
    open_group<W>(group, p.blocks, p.tensor_scale, open);
    const uint8_t* next = group + W::group_bytes(p.blocks);
    amx_group<W>({from.codes, from.scales, from.sums, from.low_sums, part.tokens}, open, p.blocks, products, next,
                 [&](int64_t t, F y) __attribute__((always_inline)) { store(p.target_of(part, t, g, i, results), settle(y)); });
}
#endif

// The tokens of all parts into shared memory, by all threads.
template <class W>
void fill_shared(const BlockProduct& p, [[maybe_unused]] bool has_amx, Worker& worker) {
    bool fine = true;
    WorkList parts(p.segments, 1);
    for (int64_t i = 0, unit, first, last; i < parts.total(); i++) {
        const Part part = parts.find(i, unit);
        char* memory = p.shared + part.room * p.blocks * kTokenBlockBytes;
#if SAMEBITS_HAS_AMX
        if (has_amx && part.tokens >= kAmxTokens) {
            worker.share(round_up(part.tokens, kTileTokens), first, last);
            fine &= fill_tiles(p, part, first, last, memory);
            continue;
        }
#endif
        worker.share(p.blocks, first, last);
        fine &= fill_dots<W>(p, part, first, last, memory);
    }
    if (!fine) worker.fail(kNotQuantized);
    worker.barrier();
}

// A thread goes through a stretch of the work of its own, which memory delivers best, and then helps others.
template <class W>
void multiply_blocks_as(const BlockProduct& p, [[maybe_unused]] bool has_amx, Worker& worker) {
    const int64_t places = p.segments.num_places();
    const bool alone = places <= (p.segments.count > 1 ? kFewTokens : 1);
    if (!alone) fill_shared<W>(p, has_amx, worker);
    float* results = reinterpret_cast<float*>(worker.scratch);
    char* own = worker.scratch + kPartTokens * kUnitRows * 4;
    const size_t group_stride = W::group_bytes(p.blocks), matrix_stride = size_t(p.num_groups()) * group_stride;
    int64_t opened = -1;  // what lies in `own`: the one row of x, or all of a segment
    WorkList work(p.segments, p.num_units());
    for (int64_t item, unit; worker.claim_near(work.total(), item);) {
        const Part part = work.find(item, unit);
        char* memory = alone ? own : p.shared + part.room * p.blocks * kTokenBlockBytes;
        const int64_t content = part.tokens == 1 ? p.segments.x_row(part.first) : places + part.first;
        if (alone && content != opened && !fill_dots<W>(p, part, 0, p.blocks, memory)) worker.fail(kNotQuantized);
        opened = content;
        const uint8_t* matrix = p.weight + size_t(p.segments.matrix(part.segment)) * matrix_stride;
        for (int i = 0; i < p.unit_groups; i++) {
            const int64_t g = p.group(unit, i);
            if (g >= p.num_groups()) continue;
#if SAMEBITS_HAS_AMX
            if (has_amx && part.tokens >= kAmxTokens) {
                tiles_group<W>(p, part, matrix + size_t(g) * group_stride, g, i, memory, results);
                continue;
            }
#endif
            dots_group<W>(p, part, matrix + size_t(g) * group_stride, g, i, memory, own, results);
        }
        if (!p.y) p.finish(p.target, unit, part, results);
    }
}

inline void multiply_blocks(const BlockProduct& p, Worker& worker) {
    if (p.segments.num_places() == 0) return;
    with_block_format(p.format, [&](auto f) {
        using W = decltype(f);
#if SAMEBITS_HAS_AMX
        if (p.segments.num_places() >= kAmxTokens && p.blocks > 0 && enable_amx()) {  // tiles are of some blocks
            configure_tiles(is_halved(W::term) ? 16 : 32);
            multiply_blocks_as<W>(p, true, worker);
            return _tile_release();
        }
#endif
        multiply_blocks_as<W>(p, false, worker);
    });
}

}  // namespace samebits::SAMEBITS_ISA
