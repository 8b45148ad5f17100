// The op head_gemm: a product for every head. Groups of 16 rows of all heads are one list of work, so that threads meet
// once, when all activations are ready, however many heads there are.
#pragma once
#include "gemm.h"

namespace samebits::SAMEBITS_ISA {

struct HeadProduct {
    const Tensor& x;
    const Tensor& weight;
    const uint8_t* packed;  // rows16, a matrix per head
    float* y;               // [tokens][heads][rows], tokens y_stride apart
    int64_t y_stride;

    int64_t tokens() const { return x.shape[0]; }
    int64_t heads() const { return weight.shape[0]; }
    int64_t rows() const { return weight.shape[1]; }
    int64_t width() const { return weight.width(); }
    int64_t blocks() const { return width() / kBlock; }
    int64_t groups() const { return (rows() + kGroup - 1) / kGroup; }
    const uint8_t* matrix(int64_t head) const {
        return packed + size_t(head) * rows16_bytes(weight.format, rows(), width());
    }
};

// f(head, group) for all groups of all heads, in the order of memory.
template <class Fn>
INLINE void each_head_group(const HeadProduct& p, Worker& worker, Fn f) {
    const int64_t total = p.heads() * p.groups(), piece = most(1, total / (worker.count * 8));
    int64_t first, last;
    while (worker.claim(total, piece, first, last))
        for (int64_t i = first; i < last; i++) f(i / p.groups(), i % p.groups());
}

// Bytes of one head's tokens side by side.
INLINE int64_t head_tokens_bytes(int64_t tokens, int64_t blocks) {
    return round_up(tokens, 8) * blocks * int64_t(sizeof(TokenBlock<8>) / 8);
}

// A thread's room for a tile of tokens on their way into blocks: codes, scales, a row in float32.
INLINE int64_t tile_room_bytes(int64_t width) { return round_up(8 * width, 64) + round_up(width, 64) + width * 4; }

// Heads first .. last - 1 into int8 blocks, each head's tokens side by side.
template <class W>
INLINE bool fill_heads(const HeadProduct& p, int64_t first, int64_t last, char* memory, char* room) {
    const int64_t width = p.width(), blocks = p.blocks();
    int8_t* codes = reinterpret_cast<int8_t*>(room);
    float* scales = reinterpret_cast<float*>(room + round_up(8 * width, 64));
    float* wide = scales + round_up(8 * blocks, 16);
    bool fine = true;
    for (int64_t h = first; h < last; h++)
        each_tile(p.tokens(), blocks, memory + h * head_tokens_bytes(p.tokens(), blocks), [&](int64_t t, auto* x) {
            constexpr int T = tile_tokens(decltype(x)(nullptr));
            for (int i = 0; i < T; i++)
                fine &= quantize_blocks(read_row(p.x, (t + i) * p.heads() + h, wide), blocks, codes + i * width,
                                        scales + i * blocks);
            fill_token_blocks<W, T>(codes, width, scales, blocks, 0, blocks, x);
        });
    return fine;
}

template <class W>
void multiply_heads_in_blocks(const HeadProduct& p, char* shared, Worker& worker) {
    const int64_t blocks = p.blocks(), head_bytes = head_tokens_bytes(p.tokens(), blocks);
    int64_t first, last;
    worker.share(p.heads(), first, last);
    if (!fill_heads<W>(p, first, last, shared, worker.scratch))
        worker.fail({"x", "NaN, Inf or a magnitude above 2^80", "finite values"});
    worker.barrier();
    each_head_group(p, worker, [&](int64_t h, int64_t g) {
        const uint8_t* group = p.matrix(h) + size_t(g) * W::group_bytes(blocks);
        float* to = p.y + h * p.rows() + g * kGroup;
        const int n = int(least(kGroup, p.rows() - g * kGroup));
        each_tile(p.tokens(), blocks, shared + h * head_bytes, [&](int64_t t, auto* x) __attribute__((always_inline)) {
            constexpr int T = tile_tokens(decltype(x)(nullptr));
            F total[T];
            tile_product<W, T>(group, blocks, p.weight.scale, x, total);
#pragma GCC unroll 8
            for (int i = 0; i < T; i++) store_partial(to + (t + i) * p.y_stride, settle(total[i]), n);
        });
    });
}

template <Format W>
void multiply_heads_as(const HeadProduct& p, const float* operands, Worker& worker) {
    const int64_t stride = p.heads() * p.width();
    each_head_group(p, worker, [&](int64_t h, int64_t g) {
        const FloatProduct one{operands + h * p.width(), stride,    p.tokens(), p.matrix(h),        W,
                               p.rows(),                 p.width(), nullptr,    p.y + h * p.rows(), p.y_stride};
        int64_t t = 0;
        for (; t + kTile <= one.tokens; t += kTile) float_tokens<W, kTile>(one, g, t);
        for (; t < one.tokens; t++) float_tokens<W, 1>(one, g, t);
    });
}

inline void multiply_heads_in_floats(const HeadProduct& p, char* shared, Worker& worker) {
    const Format format = p.weight.format;
    float *operands = reinterpret_cast<float*>(shared), *room = reinterpret_cast<float*>(worker.scratch);
    const RowRange rows = own_rows(p.x, worker);
    bool fine = true;
    for (int64_t i = rows.first; i < rows.last; i++)
        fine &= round_operands(read_row(p.x, i, room), p.width(), format, operands + i * p.width());
    if (!fine) worker.fail({"x", "NaN, Inf or a value beyond the type's range", "finite values"});
    worker.barrier();
    if (format == Format::f32) multiply_heads_as<Format::f32>(p, operands, worker);
    else if (format == Format::f16) multiply_heads_as<Format::f16>(p, operands, worker);
    else multiply_heads_as<Format::bf16>(p, operands, worker);
}

inline void run_head_gemm(const Call& call, Worker& worker) {  // x, weight -> y
    const Tensor &x = *call.in[0], &weight = *call.in[1], &y = *call.out[0];
    Shelf shelf{worker.shared};
    const uint8_t* packed = packed_weight(weight, weight.shape[0], shelf, worker);
    const bool is_f32 = y.format == Format::f32;
    const int64_t stride = is_f32 ? y.stride[0] / 4 : y.shape[1] * y.shape[2];
    float* room = is_f32 ? y.as<float>() : shelf.take<float>(y.num_elements());
    const HeadProduct p{x, weight, packed, room, stride};
    if (is_block(weight.format))
        with_block_format(weight.format,
                          [&](auto f) { multiply_heads_in_blocks<decltype(f)>(p, shelf.at, worker); });
    else
        multiply_heads_in_floats(p, shelf.at, worker);
    if (is_f32) return;
    worker.barrier();
    const RowRange rows = own_rows(y, worker);
    for (int64_t i = rows.first; i < rows.last; i++) narrow(y.row(i), room + i * y.width(), y.format, y.width());
}

// Shared: the packed weight, the result before it is rounded to 16 bits, the activations.
inline Scratch head_gemm_scratch(const Call& call, int) {
    const Tensor &x = *call.in[0], &weight = *call.in[1], &y = *call.out[0];
    const int64_t heads = weight.shape[0], rows = weight.shape[1], width = weight.width();
    int64_t shared = is_block(weight.format) ? heads * head_tokens_bytes(x.shape[0], width / kBlock) : x.num_elements() * 4;
    if (weight.layout != Layout::rows16)
        shared += heads * int64_t(rows16_bytes(weight.format, rows, width)) + 64;
    if (y.format != Format::f32) shared += y.num_elements() * 4 + 64;
    return {size_t(is_block(weight.format) ? tile_room_bytes(width) : width * 4), size_t(shared)};
}

}  // namespace samebits::SAMEBITS_ISA
