// paged_attention for all that the op allows, one query and head at a time. Keys go in groups of 16 positions, read
// where they lie or gathered from rows; values go row by row. Faster kernels for some calls: attention_fast.h.
#pragma once
#include "attention_args.h"
#include "attention_scores.h"

namespace samebits::SAMEBITS_ISA {

// What a thread works in. `p` has one entry for each position of a sequence, first scores, then exponentials.
struct AttentionRoom {
    QueryOperand query;
    char* group;
    float *p, *value, *run, *cut, *total;

    // Lays everything out from `start` on; returns the bytes.
    int64_t lay(char* start, int64_t head_size, int64_t v_dim, int64_t longest) {
        int64_t used = 0;
        auto take = [&](int64_t num_bytes) {
            char* here = reinterpret_cast<char*>(uintptr_t(start) + uintptr_t(used));
            used += round_up(num_bytes, 64);
            return here;
        };
        const int64_t padded = round_up(head_size, kBlock), v_padded = round_up(v_dim, kBlock);
        query.x = reinterpret_cast<float*>(take(padded * 4));
        query.scales = reinterpret_cast<float*>(take(padded / kBlock * 4));
        query.codes = reinterpret_cast<int8_t*>(take(padded));
        group = take(padded * kLaneTokens * 4);
        p = reinterpret_cast<float*>(take(round_up(longest, kRun) * 4));
        float** rows[] = {&value, &run, &cut, &total};
        for (float** row : rows) *row = reinterpret_cast<float*>(take(v_padded * 4));
        return used;
    }
};

// The table's longest sequence at the upper bounds of shapes; page sizes as cache_views would find them.
inline Scratch paged_attention_general_scratch(const Call& call, int) {
    const Tensor &q = *call.in[0], &k = *call.in[1];
    const int64_t page_size = k.shape[k.rank == 3 ? 1 : k.rank - 3 + call.flag(0)];
    const int64_t head_size = q.shape[2], v_dim = call.integer(5) ? call.integer(5) : head_size;
    AttentionRoom room;
    return {size_t(room.lay(nullptr, head_size, v_dim, page_size * (call.in[6] ? call.in[6]->shape[0] : 1))), 0};
}

// Sixteen positions from `base` on: which of them the query looks at.
INLINE M kept_lanes(const Seen& seen, int64_t base) {
    float keep[kLaneTokens];
    for (int64_t i = 0; i < kLaneTokens; i++) {
        const int64_t position = base + i;
        keep[i] = position >= seen.first && position < seen.stop && (!seen.mask || seen.mask[position]);
    }
    return load(keep) > zero();
}

// settle(score) * sm_scale, capped, and ALiBi.
INLINE F finished_score(const Attention& a, const Seen& seen, int64_t head, int64_t base, F score) {
    F s = settle(score) * set(a.sm_scale);
    if (a.soft_cap != 0) s = set(a.soft_cap) * tanh(settle(settle(s) * set(recip(a.soft_cap))));
    if (!a.slopes) return s;
    int32_t distance[kLaneTokens];
    for (int i = 0; i < kLaneTokens; i++) distance[i] = int32_t(base + i - seen.position);
    return s + set(a.slopes[head]) * to_float(load(distance));
}

// Scores of what is kept into p, -inf elsewhere; returns the largest.
inline float score_positions(const Attention& a, const Seen& seen, int64_t head, AttentionRoom& room, Worker& worker) {
    const CacheView& k = a.cache.k;
    const int64_t kv_head = head / a.group();
    F largest = set(-kInfinity);
    M bad_key = first_lanes(0), bad_score = first_lanes(0);
    for (int64_t base = seen.first / kRun * kRun; base < seen.stop; base += kRun) {
        const char* group = room.group;
        if (k.layout == Layout::k_lanes)
            group = k.group(a.table.page(seen.sequence, base / k.page_size), kv_head, base % k.page_size);
        else
            gather_group(k, a.table, seen.sequence, kv_head, most(base, seen.first), least(base + kRun, seen.stop),
                         room.group);
        const M kept = kept_lanes(seen, base);
        M wrong = first_lanes(0);
        const F score = group_scores(room.query, k, a.head_size, group, wrong);
        const F s = finished_score(a, seen, head, base, score);
        bad_key = bad_key | (wrong & kept);
        bad_score = bad_score | (kept & ~(s < set(kInfinity)));
        const F masked = select(kept, s, set(-kInfinity));
        largest = max(masked, largest);
        store(room.p + base, masked);
    }
    if (any(bad_key)) worker.fail({"k_cache", "NaN, Inf or a value beyond the type's range", "what append stores"});
    else if (any(bad_score)) worker.fail({"q", "a score that is NaN or +Inf", "finite scores"});
    return reduce_max(largest);
}

// p = exp(s - shift) in place; returns their sum in stream order.
inline float exponentials(const Seen& seen, float shift, float* p) {
    float total = 0, cut = 0;
    for (int64_t base = seen.first / kRun * kRun; base < seen.stop; base += kRun) {
        const F e = exp(load(p + base) - set(shift));
        store(p + base, e);
        cut += chain(e);
        if ((base + kRun) % kCut) continue;
        total += cut;
        cut = 0;
    }
    return total + cut;
}

INLINE void add_to(float* sum, float* part, int64_t n) {  // and clears the part
    for (int64_t i = 0; i < n; i += 16) {
        store(sum + i, load(sum + i) + load(part + i));
        store(part + i, zero());
    }
}

// Sum over positions of p * v in stream order into room.total. What the mask leaves out is not read.
inline void weighted_values(const Attention& a, const Seen& seen, int64_t head, AttentionRoom& room, Worker& worker) {
    const CacheView& v = a.cache.v;
    const int64_t kv_head = head / a.group(), padded = round_up(a.v_dim, kBlock);
    M wrong = first_lanes(0);
    float* rows[] = {room.run, room.cut, room.total};
    for (float* row : rows) memset(row, 0, size_t(padded) * 4);
    for (int64_t base = seen.first / kRun * kRun; base < seen.stop; base += kRun) {
        for (int64_t position = most(base, seen.first); position < least(base + kRun, seen.stop); position++) {
            if (seen.mask && !seen.mask[position]) continue;
            const int64_t page = a.table.page(seen.sequence, position / v.page_size);
            const char* row = v.row(page, kv_head, position % v.page_size);
            add_value(v, row, a.v_dim, room.p[position], room.value, room.run, wrong);
        }
        add_to(room.cut, room.run, padded);
        if ((base + kRun) % kCut == 0) add_to(room.total, room.cut, padded);
    }
    add_to(room.total, room.cut, padded);
    if (any(wrong)) worker.fail({"v_cache", "NaN, Inf or a value beyond the type's range", "what append stores"});
}

inline void attend(const Attention& a, const Seen& seen, int64_t token, int64_t head, AttentionRoom& room,
                   Worker& worker) {
    const int64_t row = token * a.num_heads + head;
    const float* q = read_row(*a.q, row, room.query.x);
    if (!room.query.assign(q, a.head_size, a.cache.k.format))
        worker.fail({"q", "NaN, Inf or a value beyond the range of the cache's type", "finite values"});
    float largest = score_positions(a, seen, head, room, worker);
    if (a.sinks && a.sinks[head] > largest) largest = a.sinks[head];
    const float shift = largest == -kInfinity ? 0 : largest;
    float total = exponentials(seen, shift, room.p);
    if (a.sinks) total += exp(a.sinks[head] - shift);
    weighted_values(a, seen, head, room, worker);
    const F normalizer = set(total > 0 ? recip(total) : 0);
    float* out = write_row(*a.out, row, room.value);
    for (int64_t i = 0; i < a.v_dim; i += 16)
        store_partial(out + i, settle(load(room.total + i) * normalizer), int(least(16, a.v_dim - i)));
    finish_row(*a.out, row, out);
    if (!a.lse) return;
    const float lse = total > 0 ? settle(largest * kLog2e + first(log2(set(total)))) : -kInfinity;
    memcpy(a.lse->data + token * a.lse->stride[0] + head * 4, &lse, 4);
}

inline void run_paged_attention_general(const Call& call, Worker& worker) {
    Attention a;
    if (!attention_args(call, worker, a)) return;
    AttentionRoom room;
    room.lay(worker.scratch, a.head_size, a.v_dim, a.table.longest());
    int64_t item, last, sequence = 0;
    while (worker.claim(a.num_tokens * a.num_heads, 1, item, last)) {
        const int64_t token = item / a.num_heads;
        sequence = a.sequence_of(token, sequence);  // items come in rising order
        attend(a, a.seen(token, sequence), token, item % a.num_heads, room, worker);
    }
}

}  // namespace samebits::SAMEBITS_ISA
