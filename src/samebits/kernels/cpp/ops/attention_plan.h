// How a call is divided. A sequence with many rows goes in blocks of rows, each a unit that one thread computes whole.
// A sequence with few rows is one unit a KV head; where such a unit is a large part of all work it is split at cuts:
// scores of all cuts, then P.V of all cuts, then their sums in order. All ways give the same bits.
#pragma once
#include "attention_unit.h"

namespace samebits::SAMEBITS_ISA::attention {

constexpr int64_t kScoreFloats = 1 << 18;  // scores of a block of rows should stay in a core's cache
constexpr int64_t kLeastBlockRows = 16, kUnitsOfThread = 4;
constexpr int64_t kSharedFloats = int64_t(1) << 24;  // room for units that are split

// A sequence in the list of work.
struct Place {
    int64_t sequence, rows, first_cut, num_cuts;
    int64_t block_rows, num_blocks;  // of units that are computed whole
    bool split;
    int64_t shared_at;  // where the shared memory of split units starts, in floats

    int64_t padded_rows() const { return round_up(rows, kTileRows); }
    int64_t stride() const { return score_stride(num_cuts * kCut); }
    // Of one KV head: scores, then of every cut the largest score, the sum of weights and the sums of P.V of each row.
    int64_t shared_floats(int64_t width) const {
        return round_up(padded_rows() * (stride() + num_cuts * (width + 2)), 16);
    }
};

class Plan {
  public:
    Plan(const Attention& a, int threads) : a_(a), threads_(threads) {
        for (int64_t b = 0; b < a.table.num_sequences; b++) {
            const Place p = extent(b);
            work_ += p.rows * p.num_cuts * a.cache.k.heads;
        }
        int64_t shared = 0;
        for (int64_t b = 0; b < a.table.num_sequences; b++) {
            const Place p = place(b, shared);
            if (p.split) num_cuts_ += p.num_cuts * a.cache.k.heads;
            else num_units_ += p.num_blocks * a.cache.k.heads;
            if (!p.split && p.rows > kMaxRows) num_large_ += p.num_blocks * a.cache.k.heads;
            if (p.split) num_split_ += a.cache.k.heads;
        }
    }

    // A sequence's place, `shared` floats being taken before it; moves `shared` on.
    Place place(int64_t b, int64_t& shared) const {
        Place p = extent(b);
        const int64_t heads = a_.cache.k.heads, floats = heads * p.shared_floats(a_.cache.v.head_size);
        p.split = threads_ > 1 && p.num_cuts > 1 && p.rows <= kMaxRows && 3 * p.rows * p.num_cuts * threads_ > work_ &&
                  shared + floats <= kSharedFloats;
        p.shared_at = shared;
        if (p.split) shared += floats;
        p.block_rows = kLeastBlockRows, p.num_blocks = p.rows > 0;
        if (p.rows <= kLeastBlockRows) return p;  // most decodes: asked for often, and divisions take long
        const int64_t by_threads = p.rows * heads / (kUnitsOfThread * threads_);
        const int64_t by_room = kScoreFloats / unit_stride(p);
        p.block_rows = most(kLeastBlockRows, least(kMaxRows, least(by_threads, by_room) / kTileRows * kTileRows));
        p.num_blocks = (p.rows + p.block_rows - 1) / p.block_rows;
        return p;
    }
    const Attention& attention() const { return a_; }
    int threads() const { return threads_; }
    int64_t num_units() const { return num_units_; }  // computed whole
    int64_t num_large() const { return num_large_; }  // of these, in sequences of many rows; they come first
    int64_t num_split() const { return num_split_; }  // split units, and their cuts
    int64_t num_cuts() const { return num_cuts_; }

  private:
    // A bound on the stride of scores of one block of rows.
    int64_t unit_stride(const Place& p) const {
        const bool slides = a_.causal && a_.window_left >= 0 && a_.window_left < p.num_cuts * kCut;
        return slides ? least(p.stride(), score_stride(a_.window_left + kMaxRows + 2 * kCut)) : p.stride();
    }

    Place extent(int64_t b) const {
        Place p{};
        const int64_t first = a_.qo_indptr[b], stop = a_.qo_indptr[b + 1];
        p.sequence = b;
        p.rows = (stop - first) * a_.group();
        if (!p.rows) return p;
        p.first_cut = a_.seen(first, b).first / kCut;
        p.num_cuts = (a_.seen(stop - 1, b).stop + kCut - 1) / kCut - p.first_cut;
        return p;
    }

    const Attention& a_;
    int threads_;
    int64_t work_ = 0;  // rows x cuts
    int64_t num_units_ = 0, num_large_ = 0, num_split_ = 0, num_cuts_ = 0;
};

// What a walk goes through: units that are computed whole, those of many rows first, then cuts of split units; those
// cuts alone; split units.
enum class Phase { first, cuts, units };

// One thread's walk through the items of a phase, in rising order.
class Walk {
  public:
    Walk(const Plan& plan, Phase phase)
        : plan_(plan), phase_(phase), pass_(phase == Phase::first ? kManyRowsPass : kSplitPass) {
        enter();
    }

    int64_t num_items() const {
        const int64_t units = phase_ == Phase::first ? plan_.num_units() : 0;
        return phase_ == Phase::units ? plan_.num_split() : units + plan_.num_cuts();
    }

    // How many items to claim next when those before `next` are taken: large units one by one, small ones of a sequence
    // together, and cuts of one size in ranges, so that few pages are met unprefetched. All shrink towards the end, so that
    // threads still end together.
    int64_t claim_size(int64_t next) const {
        const int64_t units = phase_ == Phase::first ? plan_.num_units() : 0;
        if (phase_ == Phase::units || (next < units && next < plan_.num_large())) return 1;
        const int64_t even = ((next < units ? units : num_items()) - next) / (2 * plan_.threads());
        return most(1, next < units ? least(even, plan_.attention().cache.k.heads) : even);
    }

    // The place of an item, and the item's number there.
    const Place& find(int64_t item, int64_t& inside) {
        while (item >= before_ + count_) {
            before_ += count_;
            if (++sequence_ == plan_.attention().table.num_sequences) {
                sequence_ = shared_ = 0;
                pass_++;
            }
            enter();
        }
        inside = item - before_;
        return place_;
    }

  private:
    static constexpr int kManyRowsPass = 0, kFewRowsPass = 1, kSplitPass = 2;

    void enter() {
        if (!num_items()) return;
        place_ = plan_.place(sequence_, shared_);
        const int64_t heads = plan_.attention().cache.k.heads;
        const int pass = place_.split ? kSplitPass : place_.rows > kMaxRows ? kManyRowsPass : kFewRowsPass;
        const int64_t items = !place_.split ? place_.num_blocks : phase_ == Phase::units ? 1 : place_.num_cuts;
        count_ = pass == pass_ ? heads * items : 0;
    }

    const Plan& plan_;
    Phase phase_;
    int pass_;
    Place place_{};
    int64_t sequence_ = 0, before_ = 0, count_ = 0, shared_ = 0;
};

}  // namespace samebits::SAMEBITS_ISA::attention
