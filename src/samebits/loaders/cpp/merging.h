// Merges of neighbouring symbols, the lowest rank first, the leftmost of equals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "merge_queue.h"

namespace samebits {

constexpr uint32_t NO_RANK = UINT32_MAX;
constexpr int32_t UNKNOWN = -1;

// What two neighbours become, and how soon; NO_RANK where they stay apart.
struct Join {
    uint32_t rank = NO_RANK;
    int32_t token = UNKNOWN;
};

// The symbols of a word. A symbol is known by its first byte; `next` of the last one is `end`.
class Symbols {
public:
    static constexpr uint32_t NONE = UINT32_MAX;

    // None yet, of a word of so many bytes.
    void clear(size_t num_bytes) {
        end_ = uint32_t(num_bytes);
        last_ = NONE;
        at_.resize(num_bytes);
    }

    // The symbol after those that are there.
    void add(uint32_t place, uint32_t num_bytes, int32_t token) {
        at_[place] = {token, place + num_bytes, last_};
        last_ = place;
    }

    // `left` takes its right neighbour in.
    void join(uint32_t left, int32_t token) {
        const uint32_t right = at_[left].next, after = at_[right].next;
        at_[left].token = token;
        at_[left].next = after;
        at_[right].next = NONE;
        if (after < end_) at_[after].previous = left;
    }

    bool is_there(uint32_t place) const { return at_[place].next != NONE; }
    int32_t token(uint32_t place) const { return at_[place].token; }
    uint32_t next(uint32_t place) const { return at_[place].next; }
    uint32_t previous(uint32_t place) const { return at_[place].previous; }
    uint32_t end() const { return end_; }

private:
    struct Symbol {
        int32_t token;
        uint32_t next, previous;
    };
    std::vector<Symbol> at_;
    uint32_t end_ = 0, last_ = NONE;
};

// Merges until no neighbours have a rank. `find(left, right, after)` tells what two of them become.
template <class Find>
void merge(Symbols& symbols, MergeQueue& queue, Find find) {
    auto found_at = [&](uint32_t left) {
        const uint32_t right = symbols.next(left);
        return right < symbols.end() ? find(left, right, symbols.next(right)) : Join{};
    };
    auto offer = [&](uint32_t left) {
        if (const Join join = found_at(left); join.rank != NO_RANK) queue.push(join.rank, left);
    };
    queue.start(symbols.end());
    for (uint32_t at = 0; at < symbols.end(); at = symbols.next(at)) offer(at);
    for (MergeQueue::Item item; queue.pop(item);) {
        if (!symbols.is_there(item.place)) continue;
        const Join join = found_at(item.place);
        if (join.rank != item.rank) continue;  // one of the two has grown meanwhile
        symbols.join(item.place, join.token);
        offer(item.place);
        if (symbols.previous(item.place) != Symbols::NONE) offer(symbols.previous(item.place));
    }
}

}  // namespace samebits
