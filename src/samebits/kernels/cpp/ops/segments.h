// Tokens in segments that each meet a matrix of their own, and how the threads of a product share them out.
#pragma once
#include "base.h"

namespace samebits::SAMEBITS_ISA {

// Tokens that stay in the second-level cache while all rows pass by, and what parts of a segment are multiples of: as
// many as every tile takes.
constexpr int64_t kPartTokens = 128, kPartStep = 16;

// Places ends[s] .. ends[s + 1] - 1 hold the tokens that meet matrix s, or matrices[s]. Place i is row i of x and of y;
// where there are pairs, it is row pairs[i] of y and row pairs[i] / pairs_per_row of x.
struct Segments {
    const int32_t* ends;
    int64_t count;
    const int32_t* matrices = nullptr;
    const int32_t* pairs = nullptr;
    int64_t pairs_per_row = 1;

    int64_t num_places() const { return ends[count]; }
    int64_t tokens(int64_t s) const { return ends[s + 1] - ends[s]; }
    int64_t num_used() const {
        int64_t used = 0;
        for (int64_t s = 0; s < count; s++) used += tokens(s) > 0;
        return used;
    }
    INLINE int64_t matrix(int64_t s) const { return matrices ? matrices[s] : s; }
    INLINE int64_t x_row(int64_t i) const { return pairs ? pairs[i] / pairs_per_row : i; }
    INLINE int64_t y_row(int64_t i) const { return pairs ? pairs[i] : i; }
};

// Some places of one segment.
struct Part {
    int64_t segment, first, tokens;
    int64_t room;  // where its tokens begin in memory in which each segment takes a multiple of kPartStep
};

// Tokens of such memory, for any `count` segments.
INLINE int64_t tokens_of_room(int64_t tokens, int64_t count) {
    return round_up(tokens + least(count, tokens) * (kPartStep - 1), kPartStep);
}

// The work of a product as one list: all units of rows for a part, part after part, segment after segment. Parts of a
// segment are about equal, so that a part is never a few tokens that the one before could have taken.
class WorkList {
  public:
    WorkList(const Segments& segments, int64_t num_units) : segments_(segments), units_(num_units) {
        for (int64_t s = 0; s < segments.count; s++) total_ += num_parts(segments.tokens(s)) * units_;
    }
    int64_t total() const { return total_; }

    // The part and the unit of an item. Fast where items are asked for in order.
    Part find(int64_t item, int64_t& unit) {
        if (item < before_) segment_ = before_ = room_ = 0;
        for (int64_t items; item >= before_ + (items = num_parts(segments_.tokens(segment_)) * units_); segment_++) {
            before_ += items;
            room_ += round_up(segments_.tokens(segment_), kPartStep);
        }
        const int64_t tokens = segments_.tokens(segment_), parts = num_parts(tokens);
        const int64_t size = round_up((tokens + parts - 1) / parts, kPartStep), start = (item - before_) / units_ * size;
        unit = (item - before_) % units_;
        return {segment_, segments_.ends[segment_] + start, least(size, tokens - start), room_ + start};
    }

  private:
    static int64_t num_parts(int64_t tokens) { return (tokens + kPartTokens - 1) / kPartTokens; }

    const Segments& segments_;
    int64_t units_, total_ = 0;
    int64_t segment_ = 0, before_ = 0, room_ = 0;  // the segment found last, items and room of those before it
};

}  // namespace samebits::SAMEBITS_ISA
