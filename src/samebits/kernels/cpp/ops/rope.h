// rope: rotates pairs of a head by the angles of its token's position.
#pragma once
#include "rows.h"

namespace samebits::SAMEBITS_ISA {

// Pairs (i, i + num_pairs): cos and sin one per pair.
INLINE void rotate_halves(const float* x, const float* cos, const float* sin, float* y, int64_t num_pairs) {
    for (int64_t i = 0; i < num_pairs; i += 16) {
        const int n = int(least(16, num_pairs - i));
        const F a = load_partial(x + i, n), b = load_partial(x + num_pairs + i, n);
        const F c = load_partial(cos + i, n), s = load_partial(sin + i, n);
        store_partial(y + i, settle(a * c - b * s), n);
        store_partial(y + num_pairs + i, settle(b * c + a * s), n);
    }
}

// Pairs (2i, 2i + 1): cos twice per pair, sin as (-sin, sin), for a*cos + b*(-sin) is a*cos - b*sin.
INLINE void rotate_neighbours(const float* x, const float* cos, const float* sin, float* y, int64_t num_pairs) {
    for (int64_t i = 0; i < 2 * num_pairs; i += 16) {
        const int n = int(least(16, 2 * num_pairs - i));
        const F v = load_partial(x + i, n);
        store_partial(y + i, settle(v * load_partial(cos + i, n) + swap_pairs(v) * load_partial(sin + i, n)), n);
    }
}

// One head, of `size` elements; those after its pairs stay as they are.
INLINE void rotate_head(const float* x, const float* cos, const float* sin, bool interleave, float* y, int64_t size,
                        int64_t num_pairs) {
    if (interleave) rotate_neighbours(x, cos, sin, y, num_pairs);
    else rotate_halves(x, cos, sin, y, num_pairs);
    memcpy(y + 2 * num_pairs, x + 2 * num_pairs, size_t(size - 2 * num_pairs) * 4);
}

// A token's row of the table, [num_pairs, (cos, sin)], as the rotations read it.
INLINE void spread_angles(const float* pairs, bool interleave, float* cos, float* sin, int64_t num_pairs) {
    for (int64_t i = 0; i < num_pairs; i++) {
        const float c = pairs[2 * i], s = pairs[2 * i + 1];
        if (interleave) {
            cos[2 * i] = cos[2 * i + 1] = c;
            sin[2 * i] = -s;
            sin[2 * i + 1] = s;
        } else {
            cos[i] = c;
            sin[i] = s;
        }
    }
}

// A token's heads before and after, and cos and sin for at most a head.
inline Scratch rope_scratch(const Call& call, int) {
    const Tensor& x = *call.in[0];
    return {size_t((2 * x.shape[1] * x.shape[2] + 2 * x.shape[2]) * 4), 0};
}

inline void run_rope(const Call& call, Worker& worker) {  // x, pos_ids, table -> y; interleave
    const Tensor &x = *call.in[0], &table = *call.in[2], &y = *call.out[0];
    const int32_t* positions = call.in[1]->as<int32_t>();
    const int64_t head = x.shape[2], width = x.shape[1] * head, num_pairs = table.shape[1];
    const bool interleave = call.flag(0), is_float = x.format == Format::f32;
    if (2 * num_pairs > head) return worker.fail({"table", "a rotary size above the head's", "at most the head size"});
    float* cos = reinterpret_cast<float*>(worker.scratch);
    float *sin = cos + head, *before = sin + head, *after = before + width;
    int64_t first, last;
    worker.share(x.shape[0], first, last);
    for (int64_t t = first; t < last; t++) {
        if (positions[t] < 0 || positions[t] >= table.shape[0]) {
            worker.fail({"pos_ids", "a position beyond the table", "0 .. rows of the table - 1"});
            continue;
        }
        const float* angles = reinterpret_cast<const float*>(table.data + positions[t] * table.stride[0]);
        spread_angles(angles, interleave, cos, sin, num_pairs);
        const char* source = x.data + t * x.stride[0];
        char* target = y.data + t * y.stride[0];
        if (!is_float) widen(before, source, x.format, width);
        const float* from = is_float ? reinterpret_cast<const float*>(source) : before;
        float* to = is_float ? reinterpret_cast<float*>(target) : after;
        for (int64_t at = 0; at < width; at += head)
            rotate_head(from + at, cos, sin, interleave, to + at, head, num_pairs);
        if (!is_float) narrow(target, after, y.format, width);
    }
}

}  // namespace samebits::SAMEBITS_ISA
