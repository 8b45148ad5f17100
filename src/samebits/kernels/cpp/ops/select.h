// argmax, top_k, top_k_mask_logits.
#pragma once
#include "ranking.h"

namespace samebits::SAMEBITS_ISA {

constexpr Failure kNanInX{"x", "NaN", "no NaN"};
constexpr int64_t kSortedWhole = 256;  // up to this many elements a sort costs less than finding the cut first

inline Scratch argmax_scratch(const Call& call, int) { return {size_t(call.in[0]->width() * 4), 0}; }

inline void run_argmax(const Call& call, Worker& worker) {  // x -> indices
    const Tensor &x = *call.in[0], &indices = *call.out[0];
    if (x.width() == 0) return worker.fail({"x", "an empty last axis", "a last axis that is not empty"});
    float* room = reinterpret_cast<float*>(worker.scratch);
    const RowRange rows = own_rows(x, worker);
    for (int64_t i = rows.first; i < rows.last; i++) {
        const float* row = read_row(x, i, room);
        float largest;
        if (!find_largest(row, x.width(), largest)) worker.fail(kNanInX);
        const int32_t index = find_value(row, x.width(), largest);
        memcpy(element(indices, i), &index, 4);
    }
}

// Buckets, keys to sort, and rows in float32 before and after.
inline Scratch top_k_scratch(const Call& call, int) {
    const int64_t width = round_up(call.in[0]->width(), 16);
    return {kBucketBytes + size_t(width) * 16, 0};
}

inline void run_top_k(const Call& call, Worker& worker) {  // x -> values, indices; k
    const Tensor &x = *call.in[0], &values = *call.out[0], &indices = *call.out[1];
    const int64_t width = x.width(), k = call.integer(0);
    if (k > width) return worker.fail({"k", "more than a row has", "at most the row length"});
    int64_t* buckets = reinterpret_cast<int64_t*>(worker.scratch);
    uint64_t* keys = reinterpret_cast<uint64_t*>(buckets + kNumBuckets);
    float* room = reinterpret_cast<float*>(keys + round_up(width, 16));
    const RowRange rows = own_rows(x, worker);
    for (int64_t i = rows.first; i < rows.last; i++) {
        const float* row = read_row(x, i, room);
        float largest;
        if (!find_largest(row, width, largest)) {
            worker.fail(kNanInX);
            continue;
        }
        FrontTest in_front{width <= kSortedWhole ? kWholeRow : find_cut(row, width, OneEach{}, k, buckets)};
        int64_t count = 0;
        for (int64_t j = 0; j < width; j++)
            if (in_front(row[j])) keys[count++] = uint64_t(rank_key(row[j])) << 32 | uint64_t(j);
        sort_keys(keys, count);
        float* chosen = write_row(values, i, room + round_up(width, 16));
        int32_t* places = reinterpret_cast<int32_t*>(indices.row(i));
        for (int64_t j = 0; j < k; j++) {
            places[j] = int32_t(keys[j] & 0xFFFFFFFF);
            chosen[j] = row[places[j]];
        }
        finish_row(values, i, chosen);
    }
}

inline void run_top_k_mask_logits(const Call& call, Worker& worker) {  // x -> y; k
    const Tensor &x = *call.in[0], &y = *call.out[0];
    const int64_t width = x.width(), k = call.integer(0);
    int64_t* buckets = reinterpret_cast<int64_t*>(worker.scratch);
    float* room = reinterpret_cast<float*>(buckets + kNumBuckets);
    const RowRange rows = own_rows(x, worker);
    for (int64_t i = rows.first; i < rows.last; i++) {
        const float* row = read_row(x, i, room);
        float largest, *result = write_row(y, i, room + round_up(width, 16));
        if (!find_largest(row, width, largest)) worker.fail(kNanInX);
        keep_front(find_cut(row, width, OneEach{}, k, buckets), row, result, width);
        finish_row(y, i, result);
    }
}

}  // namespace samebits::SAMEBITS_ISA
