// split_heads, merge_heads, slice_columns, concat_columns, where they are not views.
#pragma once
#include "rows.h"

namespace samebits::SAMEBITS_ISA {

// Bytes below axis 0, which are contiguous.
INLINE int64_t bytes_per_index(const Tensor& t) {
    return t.shape[0] ? t.num_elements() / t.shape[0] * t.stride[t.rank - 1] : 0;
}

// split_heads and merge_heads: the same bytes under another shape.
inline void run_same_columns(const Call& call, Worker& worker) {  // x -> y
    const Tensor &x = *call.in[0], &y = *call.out[0];
    int64_t first, last;
    worker.share(x.shape[0], first, last);
    for (int64_t t = first; t < last; t++)
        memcpy(y.data + t * y.stride[0], x.data + t * x.stride[0], size_t(bytes_per_index(x)));
}

inline void run_slice_columns(const Call& call, Worker& worker) {  // x -> y; start, stop
    const Tensor &x = *call.in[0], &y = *call.out[0];
    const int64_t element_bytes = x.stride[x.rank - 1], skipped = call.integer(0) * element_bytes;
    const RowRange rows = own_rows(x, worker);
    for (int64_t i = rows.first; i < rows.last; i++)
        memcpy(y.row(i), x.row(i) + skipped, size_t(y.width() * element_bytes));
}

inline Scratch concat_scratch(const Call& call, int) { return {size_t(call.in[1]->width() * 4), 0}; }

inline void run_concat_columns(const Call& call, Worker& worker) {  // a, b -> y
    const Tensor &a = *call.in[0], &b = *call.in[1], &y = *call.out[0];
    const int64_t element_bytes = y.format == Format::f32 ? 4 : 2, left_bytes = a.width() * element_bytes;
    float* room = reinterpret_cast<float*>(worker.scratch);
    const RowRange rows = own_rows(a, worker);
    for (int64_t i = rows.first; i < rows.last; i++) {
        char* right = y.row(i) + left_bytes;
        memcpy(y.row(i), a.row(i), size_t(left_bytes));
        if (a.format == b.format) memcpy(right, b.row(i), size_t(b.width() * element_bytes));
        else narrow(right, read_row(b, i, room), y.format, b.width());
    }
}

}  // namespace samebits::SAMEBITS_ISA
