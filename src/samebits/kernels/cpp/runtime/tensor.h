// What a kernel sees of memory: typed, strided tensors, and the arguments of one call.
#pragma once
#include <cstddef>
#include <cstdint>

// Inlined always: a copy compiled for one instruction set must not serve another.
#define SAMEBITS_INLINE inline __attribute__((always_inline))

namespace samebits {

enum class Format : int {
    f32, f16, bf16, i8, u8, i32, u32, boolean,
    q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k, nvfp4, mxfp4, q2_k, q3_k, iq4_nl, iq4_xs
};

// How a tensor's elements lie. row_major: by shape and strides. The others are private to these kernels.
//   rows16    a weight [.., N, K] in groups of 16 rows, ops/pack.h
//   k_lanes   keys of a paged cache with 16 tokens in the lanes, ops/cache.h
//   v_rows    values of a paged cache, a head's tokens one after another, ops/cache.h
enum class Layout : int { row_major, rows16, k_lanes, v_rows };

constexpr int kMaxRank = 5;
constexpr int kMaxInputs = 14;
constexpr int kMaxOutputs = 3;
constexpr int kMaxAttrs = 8;

// A tensor of block format keeps elements in `shape`; its strides count bytes like all others.
// Rows (the last axis) are contiguous; so is everything below the first axis, whose stride may be larger: a view of
// some columns of a wider tensor.
struct Tensor {
    char* data = nullptr;
    Format format = Format::f32;
    Layout layout = Layout::row_major;
    int rank = 0;
    int64_t shape[kMaxRank] = {};
    int64_t stride[kMaxRank] = {};  // bytes from one index to the next; the last axis of a block format has none
    float scale = 1;                // of the whole tensor: NVFP4

    SAMEBITS_INLINE int64_t width() const { return rank ? shape[rank - 1] : 1; }
    SAMEBITS_INLINE int64_t num_rows() const {
        int64_t n = 1;
        for (int i = 0; i + 1 < rank; i++) n *= shape[i];
        return n;
    }
    SAMEBITS_INLINE int64_t num_elements() const { return num_rows() * width(); }
    // The i-th row when all axes but the last are counted through.
    SAMEBITS_INLINE char* row(int64_t i) const {
        if (rank <= 1) return data;
        if (rank == 2) return data + i * stride[0];
        int64_t inner = num_rows() / (shape[0] ? shape[0] : 1);
        return data + (i / inner) * stride[0] + (i % inner) * stride[rank - 2];
    }
    template <class T>
    SAMEBITS_INLINE T* as() const {
        return reinterpret_cast<T*>(data);
    }
};

// One node: inputs in the order of the op's record (null where absent), results, and attrs in the record's order.
// A string attr is its position among the choices that the Python table states; an absent float is NaN.
struct Call {
    const Tensor* in[kMaxInputs] = {};
    Tensor* out[kMaxOutputs] = {};
    double attr[kMaxAttrs] = {};

    SAMEBITS_INLINE bool flag(int i) const { return attr[i] != 0; }
    SAMEBITS_INLINE int64_t integer(int i) const { return int64_t(attr[i]); }
    SAMEBITS_INLINE float real(int i) const { return float(attr[i]); }
};

}  // namespace samebits
