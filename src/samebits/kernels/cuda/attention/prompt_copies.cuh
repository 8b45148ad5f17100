// What the copying warp of prompts.cu does: blocks of keys and values, and scores that come back.
#pragma once
#include "counters.cuh"
#include "prompt.cuh"

static constexpr int BOXES = BN / RUN * (D / 64);

__device__ __forceinline__ void copy_blocks(const TensorMap& keys, const TensorMap& values, const Work& work,
                                            const Pointers& at, const Numbers& with, Shared& shared, u32 memory, int lane) {
    Ring<2> narrow, score, ring;
    u32 stored_parity = 0;
    const float* const scores = at.scores + (u64)blockIdx.x * with.room * BM;
    for (int number = blockIdx.x;;) {
        wait_barrier(shared_at(shared.number_empty + ring.stage), ring.parity ^ 1);
        if (lane == 0) {
            shared.numbers[ring.stage] = number;
            arrive(shared_at(shared.number_full + ring.stage));
        }
        ring.next();
        if (number >= work.total) break;
        const Tile tile = work.at(number);
        const Sequence& s = tile.sequence;
        const int lowest = lowest_of(tile, with.window);
        auto load = [&](const TensorMap& map, int block) {
            const u32 barrier = shared_at(shared.narrow_full + narrow.stage);
            const int half = lane % (D / 64), position = block * BN + lane / (D / 64) * RUN;
            int page = s.entry, slot = position;
            if (HAS_TABLE && lane < BOXES) {
                slot = position % PAGE, page = work.batch.num_pages;  // which there is not: a box of zeros
                if (position < s.length && position + RUN > lowest) {
                    page = work.batch.kv_indices[s.entry + position / PAGE];
                    if ((u32)page >= (u32)work.batch.num_pages) *at.fault = BAD_PAGE, page = work.batch.num_pages;
                }
            }
            wait_barrier(shared_at(shared.narrow_empty + narrow.stage), narrow.parity ^ 1);
            if (lane == 0) expect_bytes(barrier, NARROW_BYTES);
            __syncwarp();
            if (lane < BOXES)
                copy_box(memory + NARROW + narrow.stage * NARROW_BYTES + half * (BN * 128) + lane / (D / 64) * (RUN * 128),
                         map, half * 64, slot, tile.head, page, barrier);
            narrow.next();
        };
        for (Segment segment(tile.seen, with.room); segment.first < tile.seen.end; segment.next(tile.seen, with.room)) {
            for (int block = segment.first; block < segment.scored_end(tile.seen); block++) load(keys, block);
            wait_barrier(shared_at(&shared.stored), stored_parity);
            stored_parity ^= 1;
            for (int block = segment.first; block < segment.end; block++) {
                load(values, block);
                wait_barrier(shared_at(shared.scores_empty + score.stage), score.parity ^ 1);
                if (lane == 0) {
                    const u32 barrier = shared_at(shared.scores_full + score.stage);
                    expect_bytes(barrier, SCORE_BYTES);
                    copy_bulk(memory + SCORES + score.stage * SCORE_BYTES, scores + (u64)(block - segment.first) * (BM * BN),
                              SCORE_BYTES, barrier);
                }
                __syncwarp();
                score.next();
            }
        }
        draw(number, at.counters, lane);
    }
    end_drawing(at.counters, lane);
}
