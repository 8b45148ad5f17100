// The unit of fast attention: some rows of one sequence and one KV head. Row i of a sequence is its query i / group
// with the (i % group)-th of the query heads that share the KV head, so rows in order see later and later positions.
#pragma once
#include "attention_args.h"
#include "attention_tile.h"

namespace samebits::SAMEBITS_ISA::attention {

constexpr int kMaxRows = 64;                 // of a unit: what shares one widening of keys and values
constexpr int kGroupTokens = kLaneTokens;    // tokens in a vector of scores, and in a run of the stream order
constexpr int kGroupsOfCut = kCut / kGroupTokens;

// What of a cut some rows see: runs first .. stop - 1, of the first one tokens from `from` on, of the last one
// tokens up to `to`.
struct CutRange {
    int first, stop, from, to;
    int run_from(int run) const { return run == first ? from : 0; }
    int run_to(int run) const { return run == stop - 1 ? to : kRun; }
};

INLINE CutRange cut_range(int64_t begin, int64_t end, int64_t cut) {
    const int64_t low = most(0, begin - cut * kCut), high = least(kCut, end - cut * kCut);
    if (low >= high) return {0, 0, 0, 0};
    const int64_t stop = (high + kRun - 1) / kRun;
    return {int(low / kRun), int(stop), int(low % kRun), int(high - (stop - 1) * kRun)};
}

struct Unit {
    const Attention* a;
    int64_t sequence, kv_head;
    int num_rows;
    int64_t begin, end;      // positions that some row sees
    int64_t groups_of_page;  // groups of 16 tokens
    // Of each row, filled up to whole tiles with the last one's: what it sees, its token and its query head.
    int64_t first[kMaxRows], stop[kMaxRows], token[kMaxRows], head[kMaxRows];

    int64_t first_cut() const { return begin / kCut; }
    int64_t stop_cut() const { return (end + kCut - 1) / kCut; }
    int64_t origin() const { return begin / kCut * kCut; }  // the position scores are stored from
    int64_t stop_group() const { return (end + kGroupTokens - 1) / kGroupTokens; }

    // Groups of 16 tokens that some row of a tile sees, the tile that starts at this row.
    int64_t tile_first(int row) const { return first[row] / kGroupTokens; }
    int64_t tile_stop(int row) const { return (stop[row + kTileRows - 1] + kGroupTokens - 1) / kGroupTokens; }
    CutRange tile_range(int row, int64_t cut) const { return cut_range(first[row], stop[row + kTileRows - 1], cut); }

    const char* keys(int64_t group) const { return a->cache.k.group(page(group), kv_head, slot(group)); }
    const char* values(int64_t group) const { return a->cache.v.row(page(group), kv_head, slot(group)); }

  private:
    int64_t page(int64_t group) const { return a->table.page(sequence, uint32_t(group) / uint32_t(groups_of_page)); }
    int64_t slot(int64_t group) const { return int64_t(uint32_t(group) % uint32_t(groups_of_page)) * kGroupTokens; }
};

inline void set_unit(Unit& u, const Attention& a, int64_t sequence, int64_t kv_head, int64_t first_row, int num_rows) {
    u.a = &a;
    u.sequence = sequence;
    u.kv_head = kv_head;
    u.num_rows = num_rows;
    u.groups_of_page = a.table.page_size / kGroupTokens;
    const int64_t group = a.group();
    int64_t token = a.qo_indptr[sequence] + first_row / group, head = first_row % group;
    Seen seen = a.seen(token, sequence);
    for (int r = 0; r < round_up(num_rows, kTileRows); r++) {
        u.first[r] = seen.first;
        u.stop[r] = seen.stop;
        u.token[r] = token;
        u.head[r] = kv_head * group + head;
        if (r + 1 >= num_rows || ++head < group) continue;
        head = 0;
        seen = a.seen(++token, sequence);
    }
    u.begin = u.first[0];
    u.end = u.stop[num_rows - 1];
}

// Scores of a unit, then their exponentials as P.V takes them: [rows][stride] from the unit's origin on.
struct ScoreArea {
    float* data;
    int64_t stride;
    float* at(int row, int64_t offset) const { return data + row * stride + offset; }
};

// Floats between rows of scores for this many positions: never a multiple of 4096 bytes.
INLINE int64_t score_stride(int64_t positions) { return round_up(positions, kCut) + kGroupTokens; }

// Floats of a row of sums of P.V: whole blocks, as a quantized cache has them.
INLINE int64_t value_stride(int64_t v_dim) { return round_up(v_dim, kBlock); }

}  // namespace samebits::SAMEBITS_ISA::attention
