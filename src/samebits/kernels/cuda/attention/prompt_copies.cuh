// What the copying warp of prompts.cu does: blocks of keys and values, and scores that come back.
#pragma once
#include "counters.cuh"
#include "prompt.cuh"

static constexpr int BOXES = BN / RUN * (D / 64);

// A box per lane, of those of a block, and the page that it lies in: asked for ahead, for it takes a while until it is here.
struct Boxes {
    const Batch& batch;
    const Tile& tile;
    int lowest, lane, page = 0;

    __device__ __forceinline__ int position(int block) const { return block * BN + lane / (D / 64) * RUN; }
    __device__ __forceinline__ bool is_seen(int block) const {
        return lane < BOXES && position(block) < tile.sequence.length && position(block) + RUN > lowest;
    }
    __device__ __forceinline__ void ask(int block) {
        if (HAS_TABLE && is_seen(block)) page = batch.kv_indices[tile.sequence.entry + position(block) / PAGE];
    }
    // Starts the copies of the block that was asked for; boxes that nobody sees, and of pages that do not exist, are zeros.
    __device__ __forceinline__ void copy(const TensorMap& map, int block, u32 to, u32 barrier, int* fault) const {
        if (lane >= BOXES) return;
        int slot = position(block), own = tile.sequence.entry;
        if (HAS_TABLE) {
            slot %= PAGE, own = is_seen(block) ? page : -1;
            if (is_seen(block) && (u32)page >= (u32)batch.num_pages) *fault = BAD_PAGE;
        }
        const int half = lane % (D / 64);
        copy_box(to + half * (BN * 128) + lane / (D / 64) * (RUN * 128), map, half * 64, slot, tile.head, own, barrier);
    }
};

__device__ __forceinline__ void copy_blocks(const TensorMap& keys, const TensorMap& values, const Work& work,
                                            const Pointers& at, const Numbers& with, Shared& shared, u32 memory, int lane) {
    Ring<2> narrow, score, ring;
    u32 stored_parity = 0;
    const float* const kept = at.scores + (u64)blockIdx.x * with.room * BM;
    for (int number = blockIdx.x;;) {
        wait_barrier(shared_at(shared.number_empty + ring.stage), ring.parity ^ 1);
        if (lane == 0) {
            shared.numbers[ring.stage] = number;
            arrive(shared_at(shared.number_full + ring.stage));
        }
        ring.next();
        if (number >= work.total) break;
        const Tile tile = work.at(number);
        const Seen& seen = tile.seen;
        Boxes boxes = {work.batch, tile, lowest_of(tile, with.window), lane};
        auto load = [&](const TensorMap& map, int block, int next) {
            const u32 barrier = shared_at(shared.narrow_full + narrow.stage);
            wait_barrier(shared_at(shared.narrow_empty + narrow.stage), narrow.parity ^ 1);
            if (lane == 0) expect_bytes(barrier, NARROW_BYTES);
            __syncwarp();
            boxes.copy(map, block, memory + NARROW + narrow.stage * NARROW_BYTES, barrier, at.fault);
            boxes.ask(next);
            narrow.next();
        };
        Segment segment(seen, with.room);
        boxes.ask(segment.first);
        if (seen.first < seen.end) do {
            const int scored_end = segment.scored_end(seen);
            for (int block = segment.first; block < scored_end; block++)
                load(keys, block, block + 1 < scored_end ? block + 1 : segment.first);
            wait_barrier(shared_at(&shared.stored), stored_parity);
            stored_parity ^= 1;
            for (int block = segment.first; block < segment.end; block++) {
                wait_barrier(shared_at(shared.scores_empty + score.stage), score.parity ^ 1);
                if (lane == 0) {
                    const u32 barrier = shared_at(shared.scores_full + score.stage);
                    expect_bytes(barrier, SCORE_BYTES);
                    copy_bulk(memory + SCORES + score.stage * SCORE_BYTES, kept + (u64)(block - segment.first) * (BM * BN),
                              SCORE_BYTES, barrier);
                }
                __syncwarp();
                score.next();
                load(values, block, block + 1);
            }
        } while (segment.next(seen, with.room));
        draw(number, at.counters, lane);
    }
    end_drawing(at.counters, lane);
}
