// The steps of a unit of fast attention: scores, weights and P.V of a cut, the sum of cuts, the result.
#pragma once
#include "attention_latent.h"
#include "attention_values_q8.h"

namespace samebits::SAMEBITS_ISA::attention {

// A thread's own memory. Of each row: the largest score, the sum of weights, that of one cut.
struct UnitRoom {
    float *queries, *wide, *scales, *sums, *total, *scores;
    float top[kMaxRows], sum[kMaxRows], cut_sum[kMaxRows];
};

INLINE int64_t wide_floats(int64_t k_dim, int64_t width) {
    return most(kWideVectors * kGroupTokens * k_dim, kRun * width);
}

// Without the scores, which come last.
INLINE int64_t unit_floats(int64_t k_dim, int64_t width) {
    return kMaxRows * round_up(k_dim, kBlock) + wide_floats(k_dim, width) + width + 2 * kMaxRows * width;
}

INLINE UnitRoom unit_room(const Attention& a, char* scratch) {
    const int64_t width = value_stride(a.v_dim);
    UnitRoom room;
    room.queries = reinterpret_cast<float*>(scratch);
    room.wide = room.queries + kMaxRows * round_up(a.head_size, kBlock);
    room.scales = room.wide + wide_floats(a.head_size, width);
    room.sums = room.scales + width;
    room.total = room.sums + kMaxRows * width;
    room.scores = room.total + kMaxRows * width;
    return room;
}

// Scores of groups first .. stop - 1 of 16 tokens, and the largest of every row among them.
template <class K>
void unit_scores(const Unit& u, const UnitRoom& room, ScoreArea area, int64_t first, int64_t stop, float* top,
                 Worker& worker) {
    const Attention& a = *u.a;
    F tops[kMaxRows];
    for (int r = 0; r < round_up(u.num_rows, kTileRows); r++) tops[r] = set(-kInfinity);
    const float cap = a.soft_cap;
    ScoreSink sink{u, area, tops, zero(), set(a.sm_scale), set(cap), set(cap != 0 ? recip(cap) : 0.0f), cap != 0,
                   a.cache.k.format == Format::f16};
    const bool held = K::read_queries(u, room.queries);
    if (!held) worker.fail({"q", "NaN, Inf or a value beyond the range of the cache's type", "finite values"});
    all_scores(K{}, sink, {room.queries, K::query_floats(a)}, room.wide, first, stop);
    if (held && any(sink.wrong != sink.wrong)) check_scores(u, area, first, stop, worker);
    for (int r = 0; r < u.num_rows; r++) top[r] = reduce_max(tops[r]);
}

template <class V>
INLINE void wide_values(const Unit& u, const ValueJob& job, int64_t cut, const CutRange& seen, const WideRun& wide) {
    memset(job.sums, 0, size_t(round_up(u.num_rows, kTileRows) * job.width) * 4);
    for (int run = seen.first; run < seen.stop; run++) {
        const int64_t group = cut * kGroupsOfCut + run;
        V::widen(job, run, seen.run_from(run), seen.run_to(run), wide);
        for (int row = 0; row < u.num_rows; row += kTileRows)
            if (group >= u.tile_first(row) && group < u.tile_stop(row)) V::add_run(wide, job, row, run);
    }
}

template <class V>
INLINE void direct_values(const Unit& u, const ValueJob& job, int64_t cut) {
    for (int row = 0; row < u.num_rows; row += kTileRows)
        with_count<kTileRows>(u.num_rows - row, [&](auto rows) {
            V::template direct<decltype(rows)::value>(job, u.tile_range(row, cut), row);
        });
}

// Scores of a cut to weights, then their sums with values, sums [rows][width], and alone, cut_sum [rows].
template <class V>
void unit_values(const Unit& u, const UnitRoom& room, ScoreArea area, const float* top, int64_t cut, float* sums,
                 float* cut_sum) {
    const CacheView& v = u.a->cache.v;
    const int64_t last_group = u.stop_group() - 1;
    ValueJob job{area.at(0, cut * kCut - u.origin()), area.stride, v.row_bytes, v.head_size, {}, sums};
    const CutRange seen = cut_range(u.begin, u.end, cut);
    for (int run = seen.first; run < seen.stop + kRunsAhead; run++)
        job.run[run] = u.values(least(cut * kGroupsOfCut + run, last_group));
    exp_rows<V>(u, area, top, cut, cut_sum);
    if (u.num_rows > kDirectRows) wide_values<V>(u, job, cut, seen, {room.wide, room.scales});
    else direct_values<V>(u, job, cut);
}

// What depends on the formats of keys and values.
struct FastKernels {
    void (*scores)(const Unit&, const UnitRoom&, ScoreArea, int64_t, int64_t, float*, Worker&);
    void (*values)(const Unit&, const UnitRoom&, ScoreArea, const float*, int64_t, float*, float*);
};

INLINE FastKernels fast_kernels(const Attention& a) {
    FastKernels f{unit_scores<KeysQ8>, unit_values<ValuesQ8>};
    const bool in_rows = a.cache.k.layout == Layout::row_major;
    if (a.cache.k.format == Format::f16)
        f.scores = in_rows ? unit_scores<RowKeys16<StoredF16>> : unit_scores<Keys16<StoredF16>>;
    if (a.cache.k.format == Format::bf16)
        f.scores = in_rows ? unit_scores<RowKeys16<StoredBf16>> : unit_scores<Keys16<StoredBf16>>;
    if (a.cache.v.format == Format::f16) f.values = unit_values<Values16<StoredF16>>;
    if (a.cache.v.format == Format::bf16) f.values = unit_values<Values16<StoredBf16>>;
    return f;
}

// total += sums of a cut, row after row; in the order of cuts.
INLINE void add_cut(const Unit& u, int64_t width, const float* sums, const float* cut_sum, UnitRoom& room) {
    for (int64_t i = 0; i < u.num_rows * width; i += 16) store(room.total + i, load(room.total + i) + load(sums + i));
    for (int r = 0; r < u.num_rows; r++) room.sum[r] += cut_sum[r];
}

// out = total * recip(sum), and the logarithm of the sum in base 2.
inline void write_unit(const Unit& u, int64_t width, const UnitRoom& room, const float* top, Worker& worker) {
    const Tensor &out = *u.a->out, *lse = u.a->lse;
    M finite = first_lanes(16);
    for (int r = 0; r < u.num_rows; r++) {
        const float sum = room.sum[r];
        const F factor = set(sum > 0 ? recip(sum) : 0.0f);
        float* to = reinterpret_cast<float*>(out.data + u.token[r] * out.stride[0] + u.head[r] * out.stride[1]);
        for (int64_t d = 0; d < u.a->v_dim; d += 16) {
            const F x = load(room.total + r * width + d) * factor;
            finite = finite & (abs(x) <= set(__FLT_MAX__));
            store(to + d, settle(x));
        }
        if (!lse) continue;
        const float value = sum > 0 ? settle(top[r] * kLog2e + first(log2(set(sum)))) : -kInfinity;
        memcpy(lse->data + u.token[r] * lse->stride[0] + u.head[r] * 4, &value, 4);
    }
    if (!all(finite)) worker.fail({"v_cache", "NaN, Inf or a value beyond the type's range", "what append stores"});
}

}  // namespace samebits::SAMEBITS_ISA::attention
