// The arguments of paged_attention, checked, and what one query looks at.
#pragma once
#include "cache.h"

namespace samebits::SAMEBITS_ISA {

// What a query sees: positions first .. stop - 1 of its sequence, and of those the ones its mask keeps.
struct Seen {
    int64_t sequence, position;  // the query's own place; may be negative without a causal mask
    int64_t length;              // of the sequence
    int64_t first, stop;         // first <= stop
    const uint8_t* mask;         // one byte for each position of the sequence, from 0; null keeps all
};

struct Attention {
    const Tensor *q, *out, *lse;  // lse: null unless asked for
    KvCache cache;
    PageTable table;
    const int32_t* qo_indptr;
    const float *slopes, *sinks;
    const uint8_t* mask;
    int64_t mask_size, num_tokens, num_heads, head_size, v_dim, window_left;
    bool causal;
    float sm_scale, soft_cap;

    int64_t group() const { return num_heads / cache.k.heads; }  // query heads that share a KV head

    // The sequence of a token, looked for from `sequence` on; tokens come in rising order.
    int64_t sequence_of(int64_t token, int64_t sequence = 0) const {
        while (qo_indptr[sequence + 1] <= token) sequence++;
        return sequence;
    }

    int64_t mask_start(int64_t sequence) const {
        int64_t start = 0;
        for (int64_t b = 0; b < sequence; b++) start += int64_t(qo_indptr[b + 1] - qo_indptr[b]) * table.length(b);
        return start;
    }

    Seen seen(int64_t token, int64_t sequence) const {
        const int64_t length = table.length(sequence), position = token - qo_indptr[sequence + 1] + length;
        const int64_t stop = causal ? most(0, least(length, position + 1)) : length;
        const int64_t first = window_left < 0 ? 0 : least(stop, most(0, position - window_left));
        const int64_t row = token - qo_indptr[sequence];
        return {sequence, position, length, first, stop, mask ? mask + mask_start(sequence) + row * length : nullptr};
    }
};

INLINE bool all_finite(const float* x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!(x[i] - x[i] == 0)) return false;
    return true;
}

inline bool check_queries(const Attention& a, Worker& worker) {
    if (a.cache.k.heads == 0 || a.num_heads % a.cache.k.heads || a.cache.v.heads != a.cache.k.heads)
        return refuse(worker, {"q", "heads that the cache's do not divide", "a multiple of the cache's heads"});
    if (!a.table.check(worker) ||
        !check_indptr(a.qo_indptr, a.table.num_sequences, a.num_tokens, "qo_indptr", worker))
        return false;
    for (int64_t b = 0; a.causal && b < a.table.num_sequences; b++)
        if (a.qo_indptr[b + 1] - a.qo_indptr[b] > a.table.length(b))
            return refuse(worker, {"qo_indptr", "more queries than tokens", "at most a sequence's length"});
    if (a.mask && a.mask_start(a.table.num_sequences) != a.mask_size)
        return refuse(worker, {"custom_mask", "another number of entries", "queries x length of every sequence"});
    for (int64_t h = 0; a.sinks && h < a.num_heads; h++)
        if (!(a.sinks[h] < __builtin_huge_valf()))
            return refuse(worker, {"sinks", "NaN or +Inf", "finite values or -Inf"});
    if (a.slopes && !all_finite(a.slopes, a.num_heads))
        return refuse(worker, {"alibi_slopes", "NaN or Inf", "finite values"});
    return true;
}

// The call's arguments; false, with the failure noted, where the reference refuses them. Values of q are not read.
inline bool attention_args(const Call& call, Worker& worker, Attention& a) {
    const Tensor &q = *call.in[0], &k = *call.in[1];
    a.q = &q;
    a.out = call.out[0];
    a.lse = call.flag(6) ? call.out[1] : nullptr;
    a.num_tokens = q.shape[0];
    a.num_heads = q.shape[1];
    a.head_size = q.shape[2];
    a.v_dim = call.integer(5) ? call.integer(5) : a.head_size;
    if (!cache_views(k, call.in[4], call.flag(0), a.head_size, a.v_dim, a.cache, worker)) return false;
    a.table = page_table(call.in[5], call.in[6], *call.in[3], a.cache.k);
    a.qo_indptr = call.in[2]->as<int32_t>();
    a.slopes = call.in[7] ? call.in[7]->as<float>() : nullptr;
    a.sinks = call.in[8] ? call.in[8]->as<float>() : nullptr;
    a.mask = call.in[9] ? call.in[9]->as<uint8_t>() : nullptr;
    a.mask_size = call.in[9] ? call.in[9]->shape[0] : 0;
    a.causal = call.flag(1);
    const bool stated = call.attr[2] == call.attr[2];
    a.sm_scale = stated ? call.real(2) : float(1.0 / __builtin_sqrt(double(a.head_size)));
    a.window_left = call.integer(3);
    a.soft_cap = call.real(4);
    return check_queries(a, worker);
}

}  // namespace samebits::SAMEBITS_ISA
