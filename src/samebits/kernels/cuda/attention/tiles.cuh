// Tiles of BM rows, pairs (query, query head) of a KV head, and the positions that they see.
#pragma once
#include "sequences.cuh"

static constexpr int BM = 128, KV_HEADS = HEADS / GROUP;

// The blocks of BN positions that a tile sees, [first, end), and the first of those that need a mask.
struct Seen {
    int first, end, masked;
};

__device__ __forceinline__ Seen seen_by(const Sequence& s, int tile, int window) {
    const int lowest = s.length - s.count + tile * BM / GROUP;
    const int highest = s.length - s.count + (min((tile + 1) * BM, s.count * GROUP) - 1) / GROUP;
    const int stop = CAUSAL ? min(highest + 1, s.length) : s.length;
    const int clear = CAUSAL ? max(lowest + 1, 0) : s.length;
    const int begin = WINDOW ? max(lowest - window, 0) / BN : 0;
    return {begin, max((stop + BN - 1) / BN, begin), WINDOW ? 0 : clear / BN};
}

// A tile of a block's work.
struct Tile {
    Sequence sequence;
    Seen seen;
    int tile, head;
};

// The first position that a tile sees, below zero where its window reaches over the sequence's start.
__device__ __forceinline__ int lowest_of(const Tile& tile, int window) {
    return WINDOW ? tile.sequence.length - tile.sequence.count + tile.tile * BM / GROUP - window : 0;
}

// All tiles of sequences and KV heads, by numbers; the last of a sequence, the longest, comes first.
struct Work {
    const Batch& batch;
    int window, total;

    __device__ __forceinline__ Work(const Batch& batch, int window)
        : batch(batch), window(window), total(batch.num_tiles<BM, GROUP>() * KV_HEADS) {}

    __device__ __forceinline__ Tile at(int number) const {
        Tile to;
        to.tile = total / KV_HEADS - 1 - number / KV_HEADS, to.head = number % KV_HEADS;
        to.sequence = batch.at_tile<BM, GROUP>(to.tile);
        to.seen = seen_by(to.sequence, to.tile, window);
        return to;
    }
};
