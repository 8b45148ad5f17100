// The ops gemm, gemm_q8, gemm_silu_q8 and grouped_gemm: activations and weights made ready in shared memory, then one
// product.
#pragma once
#include "gemm_float.h"
#include "gemm_results.h"

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

// A weight [N, K] or [matrices, N, K] in rows16: where it lies if it was packed at load, else packed here by all threads.
INLINE const uint8_t* packed_weight(const Tensor& weight, Shelf& shelf, Worker& worker) {
    if (weight.layout == Layout::rows16) return reinterpret_cast<const uint8_t*>(weight.data);
    const int64_t matrices = weight.rank == 3 ? weight.shape[0] : 1;
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

// What a product needs of memory beside the tensors: kernels' own and a widened row per thread; shared, in this order:
// the packed weight, the activations, the product's own.
inline Scratch gemm_memory(const Tensor& weight, int64_t tokens, int64_t num_segments, bool makes_operands) {
    const int64_t width = weight.width();
    Scratch need;
    if (is_block(weight.format)) need = product_scratch(tokens, num_segments, width / kBlock);
    need.per_thread += size_t(width * 4 + 64);
    need.shared += 64;
    if (makes_operands) need.shared += size_t(round_up(tokens * width * 4, 64) + round_up(tokens * width / 8, 64) + 128);
    if (weight.layout != Layout::rows16) {
        const int64_t matrices = weight.rank == 3 ? weight.shape[0] : 1;
        need.shared += size_t(matrices) * rows16_bytes(weight.format, weight.shape[weight.rank - 2], width) + 64;
    }
    return need;
}

// The product of tokens that are int8 blocks already, but for its target.
INLINE BlockProduct quantized_product(const Tensor& codes, const Tensor& scales, const Tensor& weight,
                                      const Segments& segments, Worker& worker) {
    Shelf shelf{worker.shared};
    BlockProduct p{};
    p.segments = segments;
    p.weight = packed_weight(weight, shelf, worker);
    if (weight.layout != Layout::rows16) worker.barrier();
    p.codes = codes.as<int8_t>(), p.codes_stride = codes.stride[0];
    p.scales = scales.as<float>(), p.scales_stride = scales.stride[0] / 4;
    p.rows = weight.shape[weight.rank - 2], p.blocks = weight.width() / kBlock;
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
    const int32_t ends[] = {0, int32_t(call.in[0]->shape[0])};
    BlockProduct p = quantized_product(*call.in[0], *call.in[1], *call.in[2], {ends, 1}, worker);
    p.choose_units(worker.count);
    PlainResult result{*call.out[0], call.in[3], p};
    result.take(p);
    multiply_blocks(p, worker);
}

// A product whose results are gated: `act` as in activation.h.
template <class Act>
void multiply_gated(BlockProduct& p, const Call& call, const Tensor* bias, const Act& act, Worker& worker) {
    GatedResult<Act> result{*call.out[0], *call.out[1], bias, p, act};
    result.take(p);
    multiply_blocks(p, worker);
    if (result.refused) worker.fail({"x", "NaN, Inf or a magnitude above 2^80", "finite values"});
}

inline void run_gemm_silu_q8(const Call& call, Worker& worker) {  // codes, scales, weight -> codes, scales
    const int32_t ends[] = {0, int32_t(call.in[0]->shape[0])};
    BlockProduct p = quantized_product(*call.in[0], *call.in[1], *call.in[2], {ends, 1}, worker);
    multiply_gated(p, call, nullptr, SiluMul{}, worker);
}

inline Scratch gemm_q8_scratch(const Call& call, int) { return gemm_memory(*call.in[2], call.in[0]->shape[0], 1, false); }

// Activations as the weight's format needs them: int8 blocks of every row, or float32 values rounded to its type, a row
// for every place.
struct Operands {
    int8_t* codes = nullptr;
    float* values = nullptr;  // or the blocks' scales
};

INLINE Operands make_operands(const Tensor& x, Format format, const Segments& segments, Shelf& shelf, Worker& worker) {
    const int64_t width = x.width(), tokens = is_block(format) ? x.num_rows() : segments.num_places();
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
        const float* row = read_row(x, is_block(format) ? t : segments.x_row(t), room);
        if (is_block(format)) {
            if (!quantize_blocks(row, width / kBlock, made.codes + t * width, made.values + t * (width / kBlock)))
                worker.fail({"x", "NaN, Inf or a magnitude above 2^80", "finite values"});
        } else if (!round_operands(row, width, format, made.values + t * width)) {
            worker.fail({"x", "NaN, Inf or a value beyond the type's range", "finite values"});
        }
    }
    return made;
}

// y = x @ weight^T + bias, segment by segment, for a weight in any format.
INLINE void multiply_any(const Tensor& x, const Tensor& weight, const Segments& segments, const Tensor* bias, const Tensor& y,
                         Worker& worker) {
    Shelf shelf{worker.shared};
    const uint8_t* packed = packed_weight(weight, shelf, worker);
    const Operands made = make_operands(x, weight.format, segments, shelf, worker);
    const int64_t rows = y.shape[1], width = weight.width(), blocks = width / kBlock;
    worker.barrier();
    if (!is_block(weight.format))
        return multiply_floats({segments, made.values, packed, weight.format, rows, width, bias, y}, worker);
    BlockProduct p{segments, made.codes, width, made.values, blocks, packed, weight.format, rows, blocks, weight.scale,
                   false, shelf.at, nullptr, nullptr};
    p.choose_units(worker.count);
    PlainResult result{y, bias, p};
    result.take(p);
    multiply_blocks(p, worker);
}

inline void run_gemm(const Call& call, Worker& worker) {  // x, weight, bias? -> y
    const int32_t ends[] = {0, int32_t(call.in[0]->shape[0])};
    multiply_any(*call.in[0], *call.in[1], {ends, 1}, call.in[2], *call.out[0], worker);
}

inline Scratch gemm_scratch(const Call& call, int) { return gemm_memory(*call.in[1], call.in[0]->shape[0], 1, true); }

// Whether segments hold `places` in all, in order.
INLINE bool are_segments(const int32_t* ends, int64_t count, int64_t places) {
    if (count < 0 || ends[0] != 0 || ends[count] != places) return false;
    for (int64_t s = 0; s < count; s++)
        if (ends[s + 1] < ends[s]) return false;
    return true;
}

inline void run_grouped_gemm(const Call& call, Worker& worker) {  // x, weight, seg_indptr, weight_indices? -> y
    const Tensor &x = *call.in[0], &weight = *call.in[1];
    const int64_t count = call.in[2]->shape[0] - 1, matrices = weight.shape[0];
    const Segments segments{call.in[2]->as<int32_t>(), count, call.in[3] ? call.in[3]->as<int32_t>() : nullptr};
    if (!are_segments(segments.ends, count, x.shape[0]) || (!segments.matrices && count != matrices))
        return worker.fail({"seg_indptr", "other ends", "0 first, the number of rows last, one rising segment per weight"});
    for (int64_t s = 0; s < count; s++)
        if (segments.matrix(s) < 0 || segments.matrix(s) >= matrices)
            return worker.fail({"weight_indices", "no such weight", "weights that exist"});
    multiply_any(x, weight, segments, nullptr, *call.out[0], worker);
}

inline Scratch grouped_gemm_scratch(const Call& call, int) {
    return gemm_memory(*call.in[1], call.in[0]->shape[0], call.in[2]->shape[0] - 1, true);
}

}  // namespace samebits::SAMEBITS_ISA
