// convert_kv_layout: slots and heads of every page exchanged, or a copy where the layouts agree.
#pragma once
#include "cache.h"

namespace samebits::SAMEBITS_ISA {

inline void run_convert_kv_layout(const Call& call, Worker& worker) {  // cache -> converted; source, target
    const Tensor &from = *call.in[0], &to = *call.out[0];
    if (from.rank != 4 && from.rank != 5)
        return worker.fail({"cache", "another number of axes", "4 (split) or 5 (unified)"});
    const int64_t outer = from.shape[from.rank - 3], inner = from.shape[from.rank - 2];
    const int64_t row_bytes = from.stride[from.rank - 2], sides = from.rank == 5 ? from.shape[1] : 1;
    const bool exchange = call.attr[0] != call.attr[1];
    int64_t first, last;
    worker.share(from.shape[0], first, last);
    for (int64_t page = first; page < last; page++)
        for (int64_t side = 0; side < sides; side++) {
            const int64_t start = side * outer * inner * row_bytes;
            const char* source = from.data + page * from.stride[0] + start;
            char* target = to.data + page * to.stride[0] + start;
            for (int64_t i = 0; i < outer; i++)
                for (int64_t j = 0; j < inner; j++)
                    memcpy(target + (exchange ? j * outer + i : i * inner + j) * row_bytes,
                           source + (i * inner + j) * row_bytes, size_t(row_bytes));
        }
}

}  // namespace samebits::SAMEBITS_ISA
