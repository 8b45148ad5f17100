// Which rows are a thread's own, and loops over the elements of a row.
#pragma once
#include "base.h"

namespace samebits::SAMEBITS_ISA {

struct RowRange {
    int64_t first, last;
};

// This thread's rows of x, all axes but the last counted through: whole indices of axis 0; thread 0's for a lone row.
INLINE RowRange own_rows(const Tensor& x, const Worker& worker) {
    const int64_t outer = x.rank > 1 ? x.shape[0] : 1, inner = outer ? x.num_rows() / outer : 0;
    RowRange range;
    worker.share(outer, range.first, range.last);
    return {range.first * inner, range.last * inner};
}

// The i-th element when all axes are counted through.
INLINE char* element(const Tensor& t, int64_t i) {
    return t.rank ? t.row(i / t.width()) + i % t.width() * t.stride[t.rank - 1] : t.data;
}
INLINE float float_element(const Tensor& t, int64_t i) {
    float x;
    widen(&x, element(t, i), t.format, 1);
    return x;
}

// n <= 16 elements of row i in any float format, from `at` on; the other lanes are 0.
INLINE F load_lanes(const Tensor& t, int64_t i, int64_t at, int n) {
    if (t.format == Format::f32) return load_partial(reinterpret_cast<const float*>(t.row(i)) + at, n);
    alignas(64) float lane[16] = {};
    widen(lane, t.row(i) + at * 2, t.format, n);
    return load(lane);
}
INLINE void store_lanes(const Tensor& t, int64_t i, int64_t at, F x, int n) {
    if (t.format == Format::f32) return store_partial(reinterpret_cast<float*>(t.row(i)) + at, x, n);
    alignas(64) float lane[16];
    store(lane, x);
    narrow(t.row(i) + at * 2, lane, t.format, n);
}

// y = f(x), 16 elements at a time.
template <class Fn>
INLINE void map_row(const Fn& f, const float* x, float* y, int64_t width) {
    int64_t i = 0;
    for (; i + 16 <= width; i += 16) store(y + i, f(load(x + i)));
    if (i < width) store_partial(y + i, f(load_partial(x + i, int(width - i))), int(width - i));
}

// y = f(a, b), likewise.
template <class Fn>
INLINE void map_row(const Fn& f, const float* a, const float* b, float* y, int64_t width) {
    int64_t i = 0;
    for (; i + 16 <= width; i += 16) store(y + i, f(load(a + i), load(b + i)));
    if (i < width) {
        const int n = int(width - i);
        store_partial(y + i, f(load_partial(a + i, n), load_partial(b + i, n)), n);
    }
}

}  // namespace samebits::SAMEBITS_ISA
