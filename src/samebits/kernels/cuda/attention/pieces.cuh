// How blocks share sequences with few queries: pieces of an item, which is a tile of ROWS rows and a KV head.
#pragma once
#include "pipeline.cuh"
#include "sequences.cuh"

static constexpr int RUN = 16, ROWS = 16, KV_HEADS = HEADS / GROUP;
static constexpr int LEAST_RUNS = 8;                  // of a piece: one for each warp
static constexpr int PIECE_COST = 3, JOIN_COST = 12;  // in runs: of a piece, and of pieces that are joined
static constexpr int MOST_ROUNDS = 4;                 // of pieces that a block takes where items are cut

struct Piece {
    int first, count, entry, length;  // of its sequence
    int tile, head, first_run, end_run;
    int num_pieces, nth;  // of its item; no piece is left where there are none
    int slot;             // of the item's first piece among those that are joined
};

__device__ __forceinline__ int over(int x, int y) { return (x + y - 1) / y; }

struct Pieces {
    const Batch& batch;
    int window, length;  // length: runs of a piece, at most

    __device__ __forceinline__ int first_run(const Sequence& s) const {
        return WINDOW ? max(s.length - s.count - window, 0) / RUN : 0;
    }
    __device__ __forceinline__ int num_runs(const Sequence& s) const { return max(over(s.length, RUN) - first_run(s), 1); }
    __device__ __forceinline__ int num_items(const Sequence& s) const {
        return s.count * GROUP <= batch.most_rows ? over(s.count * GROUP, ROWS) * KV_HEADS : 0;
    }

    // A whole warp asks: runs and items of all sequences say how long pieces are.
    __device__ __forceinline__ Pieces(const Batch& batch, int window, int lane) : batch(batch), window(window) {
        int runs = 0, items = 0;
        for (int b = lane; b < batch.num_sequences; b += 32) {
            const Sequence s = batch.at(b);
            items += num_items(s), runs += num_items(s) * num_runs(s);
        }
        runs = max(__reduce_add_sync(~0u, runs), 1), items = max(__reduce_add_sync(~0u, items), 1);
        const int blocks = gridDim.x, average = over(runs, items);
        u32 best = ~0u;
        for (int cuts = lane + 1; cuts <= 128; cuts += 32) {
            if (cuts > 1 && items * cuts > MOST_ROUNDS * blocks) break;
            const u32 cost = over(items * cuts, blocks) * (over(average, cuts) + PIECE_COST) + (cuts > 1) * JOIN_COST;
            best = min(best, min(cost, (1u << 24) - 1) << 8 | cuts);
        }
        const int cuts = __reduce_min_sync(~0u, best) & 0xFF;
        length = max(max(over(average, cuts), over(runs, blocks * MOST_ROUNDS)), LEAST_RUNS);
    }

    // A piece by its number among all; a whole warp asks.
    __device__ __forceinline__ Piece at(int number, int lane) const {
        int slots = 0;
        for (int b = 0; b < batch.num_sequences; b += 32) {
            const Sequence s = batch.at(b + lane);
            const int pieces = over(num_runs(s), length), own = pieces * num_items(s), joined = pieces > 1 ? own : 0;
            const int pieces_up_to = up_to_lane(own, lane), joined_up_to = up_to_lane(joined, lane);
            const int which = __popc(__ballot_sync(~0u, pieces_up_to <= number));
            if (which < 32) {
                auto get = [&](int x) { return __shfl_sync(~0u, x, which); };
                Piece x = {get(s.first), get(s.count), get(s.entry), get(s.length)};
                const int within = number - get(pieces_up_to - own), first = get(first_run(s)), runs = get(num_runs(s));
                x.num_pieces = get(pieces), x.nth = within % x.num_pieces;
                const int item = within / x.num_pieces;
                x.head = item % KV_HEADS, x.tile = item / KV_HEADS;
                x.first_run = first + runs * x.nth / x.num_pieces;
                x.end_run = first + runs * (x.nth + 1) / x.num_pieces;
                x.slot = slots + get(joined_up_to - joined) + item * x.num_pieces;
                return x;
            }
            number -= __shfl_sync(~0u, pieces_up_to, 31);
            slots += __shfl_sync(~0u, joined_up_to, 31);
        }
        return {};
    }
};
