// The ops gemm, gemm_q8 and grouped_gemm: activations and weights made ready in shared memory, then one product.
#pragma once
#include "gemm_float.h"
#include "gemm_q8.h"
#include "quantize.h"

namespace samebits::SAMEBITS_ISA {

// Places in shared memory, one after another, each at a cache line.
struct Shelf {
    char* at;
    template <class T>
    T* take(int64_t count) {
        T* place = reinterpret_cast<T*>(at);
        at += round_up(count * int64_t(sizeof(T)), 64);
        return place;
    }
};

// A weight [.., N, K] in rows16: where it lies if it was packed at load, else packed here by all threads.
INLINE const uint8_t* packed_weight(const Tensor& weight, int64_t matrices, Shelf& shelf, Worker& worker) {
    if (weight.layout == Layout::rows16) return reinterpret_cast<const uint8_t*>(weight.data);
    const int64_t rows = weight.shape[weight.rank - 2], width = weight.width();
    const size_t bytes = rows16_bytes(weight.format, rows, width);
    uint8_t* packed = shelf.take<uint8_t>(matrices * int64_t(bytes));
    const int64_t groups = (rows + kGroup - 1) / kGroup, stride = weight.stride[weight.rank - 2];
    int64_t first, last;
    worker.share(groups, first, last);
    for (int64_t m = 0; m < matrices; m++) {
        const char* from = weight.rank == 3 ? weight.data + m * weight.stride[0] : weight.data;
        if (!pack_groups(from, size_t(stride), weight.format, rows, width, first, last, packed + size_t(m) * bytes))
            worker.fail({"weight", "NaN, Inf or a value beyond the type's range", "finite values"});
    }
    return packed;
}

// A float32 copy of a row of N in any float format, this thread's own; null for none.
INLINE const float* bias_row(const Tensor* bias, char* room) {
    return bias ? read_row(*bias, 0, reinterpret_cast<float*>(room)) : nullptr;
}

// What a product needs of memory beside the tensors: bias and kernels' own per thread; shared, in this order: the
// packed weight, the activations, the result before it is rounded to 16 bits, the product's own.
inline Scratch gemm_memory(const Tensor& weight, const Tensor& y, bool quantizes, bool has_bias) {
    const int64_t tokens = y.shape[0], rows = y.shape[1], width = weight.width();
    const int64_t matrices = weight.rank == 3 ? weight.shape[0] : 1;
    Scratch need;
    if (is_block(weight.format)) need = product_scratch(tokens, width / kBlock);
    need.per_thread = size_t(round_up(int64_t(need.per_thread), 64) + (has_bias ? round_up(rows * 4, 64) : 0) + width * 4 + 64);
    need.shared += 64;
    if (quantizes) need.shared += size_t(round_up(tokens * width * 4, 64) + round_up(tokens * width / 8, 64) + 128);
    if (weight.layout != Layout::rows16)
        need.shared += size_t(matrices) * rows16_bytes(weight.format, weight.shape[weight.rank - 2], width) + 64;
    if (y.format != Format::f32) need.shared += size_t(round_up(tokens * rows * 4, 64));
    return need;
}

// Where results go in float32, and the rounding to y's own format once all are there.
INLINE float* result_room(const Tensor& y, Shelf& shelf, int64_t& stride) {
    stride = y.format == Format::f32 ? y.stride[0] / 4 : y.shape[1];
    return y.format == Format::f32 ? y.as<float>() : shelf.take<float>(y.shape[0] * y.shape[1]);
}
INLINE void round_result(const Tensor& y, const float* room, Worker& worker) {
    if (y.format == Format::f32) return;
    worker.barrier();
    int64_t first, last;
    worker.share(y.shape[0], first, last);
    for (int64_t t = first; t < last; t++) narrow(y.row(t), room + t * y.shape[1], y.format, y.shape[1]);
}

// The product of tokens that are int8 blocks already, but for its target.
INLINE BlockProduct quantized_product(const Tensor& codes, const Tensor& scales, const Tensor& weight, Worker& worker) {
    Shelf shelf{worker.shared};
    BlockProduct p{};
    p.weight = packed_weight(weight, 1, shelf, worker);
    if (weight.layout != Layout::rows16) worker.barrier();
    p.codes = codes.as<int8_t>(), p.codes_stride = codes.stride[0];
    p.scales = scales.as<float>(), p.scales_stride = scales.stride[0] / 4;
    p.tokens = codes.shape[0], p.rows = weight.shape[0], p.blocks = weight.width() / kBlock;
    p.format = weight.format, p.tensor_scale = weight.scale;
    p.shared = shelf.at;
    return p;
}

// The start of the stretch that this thread reads of a packed weight when a single token meets it.
INLINE void warm_weight(const Tensor& weight, bool gated, Worker& worker) {
    constexpr int kBytes = 4096;
    if (weight.layout != Layout::rows16) return;
    BlockProduct p{};
    p.rows = weight.shape[0], p.gated = gated;
    p.choose_units(worker.count);
    int64_t first, last;
    worker.share(p.num_units(), first, last);
    const char* start = weight.data + size_t(p.group(first, 0)) * group_bytes(weight.format, weight.width());
    if (first < last)
        for (int i = 0; i < kBytes; i += 64) prefetch(start + i);
}
inline void warm_gemm_q8(const Call& call, Worker& worker) { warm_weight(*call.in[2], false, worker); }
inline void warm_gemm_silu_q8(const Call& call, Worker& worker) { warm_weight(*call.in[2], true, worker); }

inline void run_gemm_q8(const Call& call, Worker& worker) {  // codes, scales, weight, bias? -> y
    const Tensor& y = *call.out[0];
    BlockProduct p = quantized_product(*call.in[0], *call.in[1], *call.in[2], worker);
    const int64_t own = round_up(int64_t(product_scratch(p.tokens, p.blocks).per_thread), 64);
    p.choose_units(worker.count);
    PlainResult result{y.as<float>(), y.stride[0] / 4, p.rows, bias_row(call.in[3], worker.scratch + own), p.unit_groups};
    p.target = &result, p.finish = PlainResult::finish;
    if (!result.bias && p.rows % kGroup == 0) p.y = result.y, p.y_stride = result.y_stride;
    multiply_blocks(p, worker);
}

inline void run_gemm_silu_q8(const Call& call, Worker& worker) {  // codes, scales, weight -> codes, scales
    const Tensor &codes = *call.out[0], &scales = *call.out[1];
    BlockProduct p = quantized_product(*call.in[0], *call.in[1], *call.in[2], worker);
    GatedResult result{codes.as<int8_t>(), codes.stride[0], scales.as<float>(), scales.stride[0] / 4, false};
    p.gated = true, p.target = &result, p.finish = GatedResult::finish;
    multiply_blocks(p, worker);
    if (result.refused) worker.fail({"x", "NaN, Inf or a magnitude above 2^80", "finite values"});
}

inline Scratch gemm_q8_scratch(const Call& call, int) {
    return gemm_memory(*call.in[2], *call.out[0], false, call.in[3] != nullptr);
}

inline Scratch gemm_silu_q8_scratch(const Call& call, int) {
    Tensor results = *call.out[0];  // as wide as the weight has rows, and not rounded
    results.shape[1] *= 2, results.format = Format::f32;
    return gemm_memory(*call.in[2], results, false, false);
}

// Activations as the weight's format needs them: int8 blocks, or float32 values rounded to its type.
struct Operands {
    int8_t* codes = nullptr;
    float* values = nullptr;  // or the blocks' scales
};

INLINE Operands make_operands(const Tensor& x, Format format, Shelf& shelf, Worker& worker) {
    const int64_t tokens = x.shape[0], width = x.width();
    Operands made;
    if (is_block(format)) {
        made.codes = shelf.take<int8_t>(tokens * width);
        made.values = shelf.take<float>(tokens * (width / kBlock));
    } else {
        made.values = shelf.take<float>(tokens * width);
    }
    float* room = reinterpret_cast<float*>(worker.scratch);
    int64_t first, last;
    worker.share(tokens, first, last);
    for (int64_t t = first; t < last; t++) {
        const float* row = read_row(x, t, room);
        if (is_block(format)) {
            if (!quantize_blocks(row, width / kBlock, made.codes + t * width, made.values + t * (width / kBlock)))
                worker.fail({"x", "NaN, Inf or a magnitude above 2^80", "finite values"});
        } else if (!round_operands(row, width, format, made.values + t * width)) {
            worker.fail({"x", "NaN, Inf or a value beyond the type's range", "finite values"});
        }
    }
    return made;
}

// Rows `first` .. `first + tokens - 1` of made-ready activations times one matrix.
struct Segment {
    int64_t first, tokens;
    const uint8_t* weight;
};

INLINE void multiply_segment(const Segment& s, const Operands& x, const Tensor& weight, int64_t rows, const float* bias,
                             float* y, int64_t y_stride, char* shared, Worker& worker) {
    const int64_t width = weight.width(), blocks = width / kBlock;
    float* to = y + s.first * y_stride;
    if (is_block(weight.format)) {
        PlainResult result{to, y_stride, rows, bias, kUnitGroups};
        multiply_blocks({x.codes + s.first * width, width, x.values + s.first * blocks, blocks, s.tokens, s.weight,
                         weight.format, rows, blocks, weight.scale, false, shared, &result, PlainResult::finish},
                        worker);
    } else {
        multiply_floats({x.values + s.first * width, width, s.tokens, s.weight, weight.format, rows, width, bias, to, y_stride},
                        worker);
    }
}

inline void run_gemm(const Call& call, Worker& worker) {  // x, weight, bias? -> y
    const Tensor &x = *call.in[0], &weight = *call.in[1], &y = *call.out[0];
    Shelf shelf{worker.shared};
    const uint8_t* packed = packed_weight(weight, 1, shelf, worker);
    const Operands operands = make_operands(x, weight.format, shelf, worker);
    worker.barrier();
    int64_t y_stride;
    float* room = result_room(y, shelf, y_stride);
    const size_t own = is_block(weight.format) ? product_scratch(y.shape[0], weight.width() / kBlock).per_thread : 0;
    const float* bias = bias_row(call.in[2], worker.scratch + round_up(int64_t(own), 64));
    multiply_segment({0, y.shape[0], packed}, operands, weight, y.shape[1], bias, room, y_stride, shelf.at, worker);
    round_result(y, room, worker);
}

inline Scratch gemm_scratch(const Call& call, int) {
    return gemm_memory(*call.in[1], *call.out[0], true, call.in[2] != nullptr);
}

inline void run_grouped_gemm(const Call& call, Worker& worker) {  // x, weight, seg_indptr, weight_indices? -> y
    const Tensor &x = *call.in[0], &weight = *call.in[1], &y = *call.out[0];
    const int32_t* ends = call.in[2]->as<int32_t>();
    const int32_t* chosen = call.in[3] ? call.in[3]->as<int32_t>() : nullptr;
    const int64_t segments = call.in[2]->shape[0] - 1, matrices = weight.shape[0], rows = y.shape[1];
    Shelf shelf{worker.shared};
    const uint8_t* packed = packed_weight(weight, matrices, shelf, worker);
    const Operands operands = make_operands(x, weight.format, shelf, worker);
    int64_t y_stride;
    float* room = result_room(y, shelf, y_stride);
    const size_t bytes = rows16_bytes(weight.format, rows, weight.width());
    if (segments < 0 || ends[0] != 0 || ends[segments] != x.shape[0] || (!chosen && segments != matrices))
        return worker.fail({"seg_indptr", "other ends", "0 first, the number of rows last, one segment per weight"});
    for (int64_t s = 0; s < segments; s++)
        if (ends[s + 1] < ends[s] || (chosen && (chosen[s] < 0 || chosen[s] >= matrices)))
            return worker.fail({"seg_indptr", "a falling entry, or no such weight", "rising segments, weights that exist"});
    for (int64_t s = 0; s < segments; s++) {
        worker.barrier();  // of what was made ready, and of the memory that a product shares with the next
        const int64_t matrix = chosen ? chosen[s] : s;
        const Segment segment{ends[s], ends[s + 1] - ends[s], packed + size_t(matrix) * bytes};
        multiply_segment(segment, operands, weight, rows, nullptr, room, y_stride, shelf.at, worker);
    }
    round_result(y, room, worker);
}

inline Scratch grouped_gemm_scratch(const Call& call, int) { return gemm_memory(*call.in[1], *call.out[0], true, false); }

}  // namespace samebits::SAMEBITS_ISA
