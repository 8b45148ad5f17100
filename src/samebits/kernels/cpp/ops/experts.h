// expert_layout and combine: from tokens to pairs with their experts, and back.
#pragma once
#include "elementary.h"
#include "rows.h"

namespace samebits::SAMEBITS_ISA {

inline Scratch expert_layout_scratch(const Call& call, int) { return {size_t(call.integer(0) * 4), 0}; }

// A thread lays out the pairs of experts of its own; no other thread need have counted before.
inline void run_expert_layout(const Call& call, Worker& worker) {  // expert_ids -> pairs, seg_indptr; num_experts
    const Tensor& ids = *call.in[0];
    const int64_t num_tokens = ids.shape[0], ranks = ids.width(), experts = call.integer(0);
    int32_t *pairs = call.out[0]->as<int32_t>(), *ends = call.out[1]->as<int32_t>();
    int32_t* next = reinterpret_cast<int32_t*>(worker.scratch);  // of each own expert: its pairs, then the place of the next
    int64_t first, last;
    worker.share(experts, first, last);
    memset(next, 0, size_t(last - first) * 4);
    int32_t place = 0;
    bool exist = true;
    for (int64_t t = 0; t < num_tokens; t++) {
        const int32_t* row = reinterpret_cast<const int32_t*>(ids.row(t));
        for (int64_t r = 0; r < ranks; r++) {
            exist &= row[r] >= 0 && row[r] < experts;
            place += row[r] < first;
            if (row[r] >= first && row[r] < last) next[row[r] - first]++;
        }
    }
    if (!exist) return worker.fail({"expert_ids", "no such expert", "0 to below num_experts"});
    if (first == 0) ends[0] = 0;
    for (int64_t e = first; e < last; e++) {
        const int32_t count = next[e - first];
        next[e - first] = place;
        place += count;
        ends[e + 1] = place;
    }
    for (int64_t t = 0; t < num_tokens; t++) {
        const int32_t* row = reinterpret_cast<const int32_t*>(ids.row(t));
        for (int64_t r = 0; r < ranks; r++)
            if (row[r] >= first && row[r] < last) pairs[next[row[r] - first]++] = int32_t(t * ranks + r);
    }
}

inline void run_combine(const Call& call, Worker& worker) {  // y, weights, shared?, shared_gate? -> out
    const Tensor &y = *call.in[0], &weights = *call.in[1], &out = *call.out[0];
    const Tensor *shared = call.in[2], *gate = call.in[3];
    const int64_t ranks = weights.width(), width = y.width();
    if (y.shape[0] != weights.shape[0] * ranks) return worker.fail({"y", "other rows", "one per token and rank"});
    const RowRange rows = own_rows(weights, worker);
    for (int64_t t = rows.first; t < rows.last; t++) {
        const float* weight = reinterpret_cast<const float*>(weights.row(t));
        const F opened = gate ? sigmoid(set(float_element(*gate, t))) : zero();
        for (int64_t at = 0; at < width; at += 16) {
            const int n = int(least(16, width - at));
            F total = zero();
            for (int64_t r = 0; r < ranks; r++) total = total + set(weight[r]) * load_lanes(y, t * ranks + r, at, n);
            if (shared) {
                const F row = load_lanes(*shared, t, at, n);
                total = total + (gate ? row * opened : row);
            }
            store_lanes(out, t, at, settle(total), n);
        }
    }
}

}  // namespace samebits::SAMEBITS_ISA
