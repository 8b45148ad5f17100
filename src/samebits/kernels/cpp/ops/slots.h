// Ragged batches whose sequences keep a state each, in a slot: which tokens are whose, and what checks they take.
#pragma once
#include "cache.h"

namespace samebits::SAMEBITS_ISA {

constexpr int kChunk = 16;  // positions between two boundaries

// Tokens of one sequence in a step: rows of the batch, its slot, and the position of the first.
struct Run {
    int64_t row, count, slot, first;

    INLINE int64_t stop() const { return first + count; }
    INLINE int64_t boundary() const { return stop() - stop() % kChunk; }  // the last one at or before the stop
};

struct Runs {
    const int32_t *indptr, *positions, *slots;
    int64_t num_sequences, num_tokens;

    INLINE Runs(const Tensor& qo_indptr, const Tensor& positions, const Tensor& slots)
        : indptr(qo_indptr.as<int32_t>()), positions(positions.as<int32_t>()), slots(slots.as<int32_t>()),
          num_sequences(slots.shape[0]), num_tokens(positions.shape[0]) {}

    INLINE Run operator[](int64_t b) const {
        const int64_t row = indptr[b], count = indptr[b + 1] - row;
        return {row, count, slots[b], count ? positions[row] : 0};
    }

    // Whether they describe sequences with a slot each; `taken` has a byte for every slot.
    bool check(int64_t num_slots, char* taken, Worker& worker) const {
        if (!check_indptr(indptr, num_sequences, num_tokens, "qo_indptr", worker)) return false;
        memset(taken, 0, size_t(num_slots));
        for (int64_t b = 0; b < num_sequences; b++) {
            const Run run = (*this)[b];
            if (!run.count) continue;
            if (run.slot < 0 || run.slot >= num_slots)
                return refuse(worker, {"slots", "an index out of range", "0 .. size - 1"});
            if (taken[run.slot])
                return refuse(worker, {"slots", "a slot twice", "a slot of its own for every sequence"});
            taken[run.slot] = 1;
            bool wrong = run.first < 0;
            for (int64_t i = 0; i < run.count; i++) wrong |= positions[run.row + i] != run.first + i;
            if (wrong) return refuse(worker, {"positions", "others", "0 or more, each one more than the one before"});
        }
        return true;
    }
};

}  // namespace samebits::SAMEBITS_ISA
