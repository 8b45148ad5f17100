// Which neighbours to merge next: (rank, place) in ascending order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace samebits {

// A heap of few items is the fastest queue, and of millions a slow one. So a long word keeps a list of places for each
// rank, which is sorted when its rank's turn comes; only what is pushed at or below that rank goes to the heap.
class MergeQueue {
public:
    struct Item {
        uint32_t rank, place;
    };

    // `num_ranks` bounds the ranks that will be pushed.
    explicit MergeQueue(size_t num_ranks) : num_ranks_(num_ranks) {}

    // Empty, for a word of so many symbols.
    void start(size_t num_symbols) {
        has_lists_ = num_symbols >= LONG_WORD;
        if (has_lists_) lists_.resize(num_ranks_, NONE);
        cells_.clear();
        free_ = NONE;
        batch_.clear();
        batch_rank_ = -1;
    }

    void push(uint32_t rank, uint32_t place) {
        if (has_lists_ && int64_t(rank) > batch_rank_) return list(rank, place);
        heap_.push_back(uint64_t(rank) << 32 | place);
        std::push_heap(heap_.begin(), heap_.end(), std::greater<uint64_t>());
    }

    // The first item, which is taken out; false when there is none.
    bool pop(Item& item) {
        if (batch_.empty() && heap_.empty() && !open_next_list()) return false;
        const uint64_t listed = batch_.empty() ? UINT64_MAX : uint64_t(batch_rank_) << 32 | batch_.back();
        const uint64_t first = heap_.empty() ? listed : std::min(heap_.front(), listed);
        if (first == listed) {
            batch_.pop_back();
        } else {
            std::pop_heap(heap_.begin(), heap_.end(), std::greater<uint64_t>());
            heap_.pop_back();
        }
        item = {uint32_t(first >> 32), uint32_t(first)};
        return true;
    }

private:
    static constexpr size_t LONG_WORD = 4096;
    static constexpr uint32_t NONE = UINT32_MAX;
    struct Cell {
        uint32_t place, next;
    };

    void list(uint32_t rank, uint32_t place) {
        uint32_t cell = free_;
        if (cell != NONE) {
            free_ = cells_[cell].next;
        } else {
            cell = uint32_t(cells_.size());
            cells_.emplace_back();
        }
        if (lists_[rank] == NONE) {
            ranks_.push_back(rank);
            std::push_heap(ranks_.begin(), ranks_.end(), std::greater<uint32_t>());
        }
        cells_[cell] = {place, lists_[rank]};
        lists_[rank] = cell;
    }

    // Moves the places of the lowest rank to the batch, the last place first; false when no rank has any.
    bool open_next_list() {
        if (ranks_.empty()) return false;
        std::pop_heap(ranks_.begin(), ranks_.end(), std::greater<uint32_t>());
        batch_rank_ = ranks_.back();
        ranks_.pop_back();
        for (uint32_t cell = lists_[size_t(batch_rank_)]; cell != NONE;) {
            batch_.push_back(cells_[cell].place);
            const uint32_t next = cells_[cell].next;
            cells_[cell].next = free_;
            free_ = cell;
            cell = next;
        }
        lists_[size_t(batch_rank_)] = NONE;
        if (!std::is_sorted(batch_.begin(), batch_.end(), std::greater<uint32_t>()))
            std::sort(batch_.begin(), batch_.end(), std::greater<uint32_t>());
        return true;
    }

    size_t num_ranks_;
    bool has_lists_ = false;
    std::vector<uint64_t> heap_;            // rank and place
    std::vector<uint32_t> lists_;           // by rank, the first cell
    std::vector<Cell> cells_;
    uint32_t free_ = NONE;                  // the first of the cells in no list
    std::vector<uint32_t> ranks_;           // those with a list, as a heap
    std::vector<uint32_t> batch_;           // places of the rank whose turn it is
    int64_t batch_rank_ = -1;
};

}  // namespace samebits
