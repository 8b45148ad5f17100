// paged_attention: the fast way on the private cache layouts and on latent caches, else the general one.
#pragma once
#include "attention_general.h"
#include "attention_plan.h"
#include "attention_steps.h"

namespace samebits::SAMEBITS_ISA::attention {

// One thread's part of a call.
struct FastCall {
    const Attention& a;
    FastKernels kernels;
    UnitRoom room;
    float* shared;
    int64_t width;  // of a row of sums
};

// Asks for the first values of a unit, which its scores give time to come, and for the first keys of the KV head behind it.
INLINE void fetch_ahead(const Unit& u) {
    constexpr int64_t kGroupsAhead = 3;
    const CacheView &k = u.a->cache.k, &v = u.a->cache.v;
    const int64_t first = u.begin / kGroupTokens, stop = least(first + kGroupsAhead, u.stop_group());
    if (k.layout == Layout::row_major || u.num_rows > kDirectRows) return;
    const bool is_last = u.kv_head + 1 == k.heads;
    for (int64_t g = first; g < stop; g++) {
        const char *values = u.values(g), *keys = u.keys(g) + k.head_bytes;
        for (int64_t i = 0; i < v.row_bytes * kRun; i += 64) prefetch(values + i);
        for (int64_t i = 0; i < k.group_bytes() && !is_last; i += 64) prefetch(keys + i);
    }
}

// Block of rows `block` of a sequence, from scores to results.
inline void whole_unit(FastCall& call, const Place& p, int64_t kv_head, int64_t block, Worker& worker) {
    Unit u;
    const int64_t first_row = block * p.block_rows;
    set_unit(u, call.a, p.sequence, kv_head, first_row, int(least(p.block_rows, p.rows - first_row)));
    fetch_ahead(u);
    UnitRoom& room = call.room;
    const ScoreArea area{room.scores, score_stride(u.end - u.origin())};
    call.kernels.scores(u, room, area, u.begin / kGroupTokens, u.stop_group(), room.top, worker);
    memset(room.total, 0, size_t(u.num_rows * call.width) * 4);
    memset(room.sum, 0, sizeof room.sum);
    for (int64_t cut = u.first_cut(); cut < u.stop_cut(); cut++) {
        call.kernels.values(u, room, area, room.top, cut, room.sums, room.cut_sum);
        add_cut(u, call.width, room.sums, room.cut_sum, room);
    }
    write_unit(u, call.width, room, room.top, worker);
}

// A split unit and its shared memory.
struct SplitUnit {
    Unit u;
    ScoreArea scores;
    float *tops, *cut_sums, *sums;  // [cuts][rows], [cuts][rows], [cuts][rows][width]
    int64_t rows;                   // padded to whole tiles
};

INLINE void set_split_unit(SplitUnit& s, const FastCall& call, const Place& p, int64_t kv_head) {
    set_unit(s.u, call.a, p.sequence, kv_head, 0, int(p.rows));
    s.rows = p.padded_rows();
    s.scores = {call.shared + p.shared_at + kv_head * p.shared_floats(call.width), p.stride()};
    s.tops = s.scores.data + s.rows * p.stride();
    s.cut_sums = s.tops + p.num_cuts * s.rows;
    s.sums = s.cut_sums + p.num_cuts * s.rows;
}

// Scores of some cuts; their maxima stand at the first one.
inline void score_cuts(FastCall& call, const SplitUnit& s, int64_t first, int64_t count, Worker& worker) {
    const int64_t group = (s.u.first_cut() + first) * kGroupsOfCut;
    for (int64_t i = first * s.rows; i < (first + count) * s.rows; i++) s.tops[i] = -kInfinity;
    call.kernels.scores(s.u, call.room, s.scores, most(group, s.u.begin / kGroupTokens),
                        least(group + count * kGroupsOfCut, s.u.stop_group()), s.tops + first * s.rows, worker);
}

INLINE void largest_scores(const SplitUnit& s, int64_t num_cuts, float* top) {
    for (int r = 0; r < s.u.num_rows; r++) top[r] = s.tops[r];
    for (int64_t i = 1; i < num_cuts; i++)
        for (int r = 0; r < s.u.num_rows; r++) {
            const float other = s.tops[i * s.rows + r];
            if (other > top[r]) top[r] = other;
        }
}

inline void value_cuts(FastCall& call, const SplitUnit& s, int64_t first, int64_t count, int64_t num_cuts) {
    largest_scores(s, num_cuts, call.room.top);
    for (int64_t i = first; i < first + count; i++)
        call.kernels.values(s.u, call.room, s.scores, call.room.top, s.u.first_cut() + i,
                            s.sums + i * s.rows * call.width, s.cut_sums + i * s.rows);
}

inline void finish_split(FastCall& call, const SplitUnit& s, int64_t num_cuts, Worker& worker) {
    UnitRoom& room = call.room;
    largest_scores(s, num_cuts, room.top);
    memset(room.total, 0, size_t(s.u.num_rows * call.width) * 4);
    memset(room.sum, 0, sizeof room.sum);
    for (int64_t i = 0; i < num_cuts; i++)
        add_cut(s.u, call.width, s.sums + i * s.rows * call.width, s.cut_sums + i * s.rows, room);
    write_unit(s.u, call.width, room, room.top, worker);
}

// `count` items of a place from number i on; returns how many it did: one unit, or cuts of one KV head.
inline int64_t run_items(FastCall& call, const Place& p, Phase phase, int64_t i, int64_t count, Worker& worker) {
    const int64_t heads = call.a.cache.k.heads;
    if (!p.split) {
        whole_unit(call, p, i % heads, p.num_blocks - 1 - i / heads, worker);  // those that see most come first
        return 1;
    }
    SplitUnit s;
    set_split_unit(s, call, p, phase == Phase::units ? i : i / p.num_cuts);
    const int64_t first = i % p.num_cuts, cuts = least(count, p.num_cuts - first);
    if (phase == Phase::first) score_cuts(call, s, first, cuts, worker);
    else if (phase == Phase::cuts) value_cuts(call, s, first, cuts, p.num_cuts);
    else finish_split(call, s, p.num_cuts, worker);
    return phase == Phase::units ? 1 : cuts;
}

inline void run_phase(FastCall& call, const Plan& plan, Phase phase, Worker& worker) {
    Walk walk(plan, phase);
    int64_t item, stop = 0, inside;
    while (worker.claim(walk.num_items(), walk.claim_size(stop), item, stop))
        while (item < stop) {
            const Place& p = walk.find(item, inside);
            item += run_items(call, p, phase, inside, stop - item, worker);
        }
}

inline void run_fast(const Attention& a, Worker& worker) {
    FastCall call{a, fast_kernels(a), unit_room(a, worker.scratch), reinterpret_cast<float*>(worker.shared),
                  a.cache.v.head_size};
    const Plan plan(a, worker.count);
    run_phase(call, plan, Phase::first, worker);
    if (!plan.num_split()) return;
    worker.barrier();
    run_phase(call, plan, Phase::cuts, worker);
    worker.barrier();
    run_phase(call, plan, Phase::units, worker);
}

INLINE bool stores_fast(Format f) { return f == Format::f16 || f == Format::bf16 || f == Format::q8_0; }

// A latent cache [P, ps, D]: values are the first elements of keys.
INLINE bool is_latent(const Tensor& k) {
    return k.rank == 3 && (k.format == Format::f16 || k.format == Format::bf16) && k.shape[1] % kGroupTokens == 0;
}

INLINE bool is_fast(const Call& call) {
    const Tensor &q = *call.in[0], &k = *call.in[1], *v = call.in[4];
    const int64_t v_dim = call.integer(5) ? call.integer(5) : q.shape[2];
    const bool in_lanes = v && k.layout == Layout::k_lanes && v->layout == Layout::v_rows && stores_fast(k.format) &&
                          stores_fast(v->format);
    return (in_lanes || (!v && is_latent(k))) && q.format == Format::f32 && !call.in[7] && !call.in[8] &&
           !call.in[9] && q.shape[2] % 16 == 0 && q.shape[2] && q.shape[2] <= kMaxHeadSize && v_dim % 16 == 0;
}

// At the upper bounds of shapes. Without a table every sequence has one page.
inline Scratch fast_scratch(const Call& call) {
    const Tensor &q = *call.in[0], &k = *call.in[1], &last = *call.in[3];
    const int64_t k_dim = q.shape[2], width = value_stride(call.integer(5) ? call.integer(5) : k_dim);
    const int64_t num_sequences = last.shape[0], page_size = k.shape[1];
    const int64_t longest = page_size * (call.in[6] ? call.in[6]->shape[0] : 1);
    const int64_t scores = most(kScoreFloats, kLeastBlockRows * score_stride(longest));
    // Of a split sequence both end cuts may be partial, and a row of scores is a little longer than its cuts.
    const int64_t positions = (call.in[6] ? longest : page_size * num_sequences) + num_sequences * 3 * kCut;
    const int64_t rows = least(kMaxRows, round_up(q.shape[0] * q.shape[1], kTileRows));
    const int64_t shared = (k.rank == 3 ? 1 : k.shape[2]) * rows * (positions + positions / kCut * (width + 2));
    return {size_t(unit_floats(k_dim, width) + scores) * 4, size_t(least(shared, kSharedFloats)) * 4};
}

}  // namespace samebits::SAMEBITS_ISA::attention

namespace samebits::SAMEBITS_ISA {

inline Scratch paged_attention_scratch(const Call& call, int threads) {
    return attention::is_fast(call) ? attention::fast_scratch(call) : paged_attention_general_scratch(call, threads);
}

inline void run_paged_attention(const Call& call, Worker& worker) {
    if (!attention::is_fast(call)) return run_paged_attention_general(call, worker);
    Attention a;
    if (attention_args(call, worker, a)) attention::run_fast(a, worker);
}

}  // namespace samebits::SAMEBITS_ISA
