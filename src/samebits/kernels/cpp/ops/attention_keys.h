// Scores of a unit against keys in k_lanes: 16 tokens in the lanes, query rows broadcast.
#pragma once
#include "attention_unit.h"

namespace samebits::SAMEBITS_ISA::attention {

constexpr int kDirectRows = 8;  // up to here keys are widened as they are loaded, beyond once for all tiles of rows

// Where scores go, scaled, capped and masked, and what is noted of them.
struct ScoreSink {
    const Unit& u;
    ScoreArea area;
    F* top;   // [rows] largest of each lane
    F wrong;  // NaN in lanes where a score that counts is not finite: the sum of 0 * score. check_scores says what is wrong
    F scale, cap, inverse_cap;
    bool capped, settled;  // sums of products of float16 numbers are settled as they are: multiples of 2^-48
};

// Lanes first .. stop - 1 of 16, for any two numbers.
INLINE M lanes_between(int64_t first, int64_t stop) {
    return first_lanes(int(most(0, least(stop, 16)))) & ~first_lanes(int(most(0, least(first, 16))));
}

template <int R, int C>
INLINE void keep_scores(ScoreSink& s, const SumTile<R, C>& t, int row, int64_t position) {
    const bool all_seen = s.u.first[row + R - 1] <= position && s.u.stop[row] >= position + C * kGroupTokens;
    each_cell<R, C>([&](int r, int c) INLINED {
        const int64_t at = position + c * kGroupTokens;
        F x = (s.settled ? t.v[r][c] : settle(t.v[r][c])) * s.scale;
        const M seen = all_seen ? first_lanes(16) : lanes_between(s.u.first[row + r] - at, s.u.stop[row + r] - at);
        s.wrong = fma_exact(all_seen ? x : select(seen, x, zero()), zero(), s.wrong);
        if (s.capped) x = s.cap * tanh(settle(settle(x) * s.inverse_cap));
        if (!all_seen) x = select(seen, x, set(-kInfinity));
        s.top[row + r] = max(s.top[row + r], x);
        store(s.area.at(row + r, at - s.u.origin()), x);
    });
}

// Whether all that a unit reads of a token's key is what append stores: token i of a group of keys.
INLINE bool is_stored(const CacheView& k, int64_t size, const char* group, int i) {
    bool stored = true;
    if (k.format == Format::q8_0)
        for (int64_t b = 0; b < k.num_blocks(); b++) stored &= is_operand(group_scales(group, b)[i], Format::f16);
    else if (k.layout == Layout::row_major)
        for (int64_t d = 0; d < size; d++)
            stored &= is_operand(reinterpret_cast<const uint16_t*>(group + i * k.row_bytes)[d], k.format);
    else
        for (int64_t d = 0; d < size; d++) stored &= is_operand(group_elements(group, d)[i], k.format);
    return stored;
}

// Looks for what a unit refuses in groups first .. stop - 1, where some score is not finite. A score of -Inf is fine: it
// is below all others.
inline void check_scores(const Unit& u, ScoreArea area, int64_t first, int64_t stop, Worker& worker) {
    bool bad_key = false, bad_score = false;
    for (int64_t position = first * kGroupTokens; position < stop * kGroupTokens; position++) {
        bool is_seen = false;
        for (int r = 0; r < u.num_rows; r++) {
            if (position < u.first[r] || position >= u.stop[r]) continue;
            is_seen = true;
            bad_score |= !(*area.at(r, position - u.origin()) < kInfinity);
        }
        const char* group = u.keys(position / kGroupTokens);
        bad_key |= is_seen && !is_stored(u.a->cache.k, u.a->head_size, group, int(position % kGroupTokens));
    }
    if (bad_key) worker.fail({"k_cache", "NaN, Inf or a value beyond the type's range", "what append stores"});
    else if (bad_score) worker.fail({"q", "a score that is NaN or +Inf", "finite scores"});
}

// Query rows as a tile reads them.
struct QueryRows {
    const float* data;
    int64_t stride;
};

INLINE const float* query_row(const Unit& u, int row) {
    const Tensor& q = *u.a->q;
    return reinterpret_cast<const float*>(q.data + u.token[row] * q.stride[0] + u.head[row] * q.stride[1]);
}

template <class T>
struct Keys16 {  // f16, bf16
    static int64_t query_floats(const Attention& a) { return a.head_size; }

    // Rows rounded to the type of the keys, zeros after the last one to a whole tile; false for values it cannot hold.
    static bool read_queries(const Unit& u, float* to) {
        const int64_t size = u.a->head_size;
        M held = first_lanes(16);
        for (int r = 0; r < u.num_rows; r++) {
            const float* row = query_row(u, r);
            for (int64_t d = 0; d < size; d += 16) {
                const F x = T::round(load(row + d));
                held = held & (abs(x) <= set(T::largest));
                store(to + r * size + d, x);
            }
        }
        memset(to + u.num_rows * size, 0, size_t(round_up(u.num_rows, kTileRows) - u.num_rows) * size_t(size) * 4);
        return all(held);
    }

    // C groups that lie apart; those to come are fetched meanwhile.
    template <int R, int C>
    static INLINE SumTile<R, C> tile(const QueryRows& q, const char* const* now, const char* const* next,
                                     int64_t size) {
        return tile_dot<1, R, C>(
            [&](int r, int d) INLINED { return q.data[r * q.stride + d]; },
            [&](int c, int d) INLINED {
                if (d % 2 == 0) prefetch(group_elements(next[c], d));
                return T::load(group_elements(now[c], d));
            },
            int(size));
    }

    static void widen_group(const char* group, int64_t size, float* to) {
        for (int64_t d = 0; d < size; d++) store(to + d * kGroupTokens, T::load(group_elements(group, d)));
    }
};

struct KeysQ8 {
    // A row: codes, four in a word; of each block -kBias8 * the sum of its codes; the blocks' scales.
    static int64_t query_floats(const Attention& a) { return (a.head_size + kBlock - 1) / kBlock * 10; }

    static bool read_queries(const Unit& u, float* to) {
        const int64_t num_blocks = u.a->cache.k.num_blocks();
        bool held = true;
        for (int r = 0; r < u.num_rows; r++) {
            float* row = to + r * query_floats(*u.a);
            float padded[kMaxHeadSize] = {};
            int8_t codes[kMaxHeadSize];
            memcpy(padded, query_row(u, r), size_t(u.a->head_size) * 4);
            held &= quantize_blocks(padded, num_blocks, codes, row + num_blocks * 9);
            memcpy(row, codes, size_t(num_blocks) * kBlock);
            for (int64_t b = 0; b < num_blocks; b++) {
                int32_t start = 0;
                for (int i = 0; i < kBlock; i++) start -= kBias8 * codes[b * kBlock + i];
                memcpy(row + num_blocks * 8 + b, &start, 4);
            }
        }
        return held;
    }

    // Terms of a block added to sum.
    template <int R, int C>
    static INLINE void add_block(SumTile<R, C>& sum, const QueryRows& q, const char* const* now,
                                 const char* const* next, int64_t num_blocks, int64_t b) {
        I isum[R][C];
        each_cell<R, C>([&](int r, int c) INLINED { isum[r][c] = set(word(q, r, num_blocks * 8 + b)); });
#pragma GCC unroll 8
        for (int quad = 0; quad < 8; quad++) {
            B codes[C];
#pragma GCC unroll 8
            for (int c = 0; c < C; c++) {
                codes[c] = load_bytes(group_codes(now[c], num_blocks, b * 8 + quad));
                prefetch(group_codes(next[c], num_blocks, b * 8 + quad));
            }
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                const int32_t four = word(q, r, b * 8 + quad);
#pragma GCC unroll 8
                for (int c = 0; c < C; c++) isum[r][c] = dot_8bit(isum[r][c], codes[c], four);
            }
        }
        each_cell<R, C>([&](int r, int c) INLINED {
            const F d = load_f16(group_scales(now[c], b)), scale = set(q.data[r * q.stride + num_blocks * 9 + b]);
            sum.v[r][c] = sum.v[r][c] + to_float(isum[r][c]) * (d * scale);
        });
    }

    template <int R, int C>
    static INLINE SumTile<R, C> tile(const QueryRows& q, const char* const* now, const char* const* next,
                                     int64_t size) {
        const int64_t num_blocks = (size + kBlock - 1) / kBlock;
        SumTile<R, C> total;
        clear(total);
        for (int64_t chunk = 0; chunk < num_blocks; chunk += kChunkBlocks) {
            SumTile<R, C> sum;
            clear(sum);
            for (int64_t b = chunk; b < least(chunk + kChunkBlocks, num_blocks); b++)
                add_block(sum, q, now, next, num_blocks, b);
            add(total, sum);
        }
        return total;
    }

  private:
    static INLINE int32_t word(const QueryRows& q, int r, int64_t i) {
        int32_t x;
        memcpy(&x, q.data + r * q.stride + i, 4);
        return x;
    }
};

template <class K, int R, int C>
void direct_tile(ScoreSink& s, const QueryRows& q, const char* const* now, const char* const* next, int row,
                 int64_t group) {
    const QueryRows rows{q.data + row * q.stride, q.stride};
    keep_scores(s, K::template tile<R, C>(rows, now, next, s.u.a->head_size), row, group * kGroupTokens);
}

// Groups first .. stop - 1 for all rows, keys widened as they are loaded.
template <class K>
void direct_scores(ScoreSink& s, const QueryRows& q, int64_t first, int64_t stop) {
    constexpr int C = kDirectVectors;
    const Unit& u = s.u;
    for (int64_t g = first; g < stop; g += C) {
        const char *now[C], *next[C];
        for (int c = 0; c < C; c++) {
            now[c] = u.keys(least(g + c, stop - 1));
            next[c] = u.keys(least(g + C + c, u.stop_group() - 1));
        }
        for (int row = 0; row < u.num_rows; row += kTileRows) {
            if (g + C <= u.tile_first(row) || g >= u.tile_stop(row)) continue;
            with_count<kTileRows>(u.num_rows - row, [&](auto rows) {
                constexpr int R = decltype(rows)::value;
                if (g + C <= stop) return direct_tile<K, R, C>(s, q, now, next, row, g);
                for (int64_t c = 0; g + c < stop; c++) direct_tile<K, R, 1>(s, q, now + c, next + c, row, g + c);
            });
        }
    }
}

template <int C>
void wide_tile(ScoreSink& s, const QueryRows& q, const float* wide, int row, int64_t group) {
    const int64_t size = s.u.a->head_size, stride = q.stride;
    const float* rows = q.data + row * stride;
    const SumTile<kTileRows, C> t = tile_dot<2, kTileRows, C>(
        [=](int r, int d) INLINED { return rows[r * stride + d]; },
        [=](int c, int d) INLINED { return load(wide + (c * size + d) * kGroupTokens); },
        int(size));
    keep_scores(s, t, row, group * kGroupTokens);
}

// The same with keys widened once for all rows; tiles of rows leave out groups that none of them sees.
template <class K>
void wide_scores(ScoreSink& s, const QueryRows& q, float* wide, int64_t first, int64_t stop) {
    const Unit& u = s.u;
    const int64_t size = u.a->head_size;
    for (int64_t g = first; g < stop; g += kWideVectors) {
        const int64_t end = least(g + kWideVectors, stop);
        for (int64_t c = g; c < end; c++) K::widen_group(u.keys(c), size, wide + (c - g) * size * kGroupTokens);
        for (int row = 0; row < u.num_rows; row += kTileRows) {
            const int64_t from = most(g, u.tile_first(row)), to = least(end, u.tile_stop(row));
            for (int64_t c = from, n; c < to; c += n)
                with_count<kWideVectors>(to - c, [&](auto vectors) {
                    constexpr int C = decltype(vectors)::value;
                    wide_tile<C>(s, q, wide + (c - g) * size * kGroupTokens, row, c);
                    n = C;
                });
        }
    }
}

template <class T>
INLINE void all_scores(Keys16<T>, ScoreSink& s, const QueryRows& q, float* wide, int64_t first, int64_t stop) {
    if (s.u.num_rows > kDirectRows) wide_scores<Keys16<T>>(s, q, wide, first, stop);
    else direct_scores<Keys16<T>>(s, q, first, stop);
}

// Integer sums read codes as they lie.
INLINE void all_scores(KeysQ8, ScoreSink& s, const QueryRows& q, float*, int64_t first, int64_t stop) {
    direct_scores<KeysQ8>(s, q, first, stop);
}

}  // namespace samebits::SAMEBITS_ISA::attention
