// Attention of sequences with several queries, the portable tier's: the definition's sums, in its order.
//
// A block stays and takes tiles of BM rows. First come the scores of all positions that a tile sees, and their maximum; then
// the weights and values. Between the two, scores lie in global memory: copies bring them there and back. One warp copies;
// eight compute, and make the next block's operands, of BN positions, before they wait for each other: one barrier per block is
// enough. Where positions are more than there is room for, scores of later ones are computed twice.
// Compiled with D (head size), HEADS, GROUP, PAGE, BF16 (the cache's type), WIDE_Q (float32 queries and results, else the
// cache's), CAUSAL, WINDOW, HAS_TABLE, HAS_SINKS: 0 or 1; constants of the arithmetic, numbers of faults.
#include "prompt_copies.cuh"
#include "prompt_operands.cuh"
#include "prompt_scores.cuh"
#include "prompt_values.cuh"

__device__ __forceinline__ void sync_computing() { sync_some(1, THREADS); }

// Starts the copy of a block's scores to global memory; by one thread, which alone waits for it.
__device__ __forceinline__ void start_storing(float* to, u32 from) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;" ::"l"(
                     __cvta_generic_to_global(to)),
                 "r"(from), "r"(SCORE_BYTES)
                 : "memory");
}
__device__ __forceinline__ void wait_until_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void wait_until_stored() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Results of a tile: a thread's sums times its rows' factors; one that is infinite is a refused row's: values are not to blame.
__device__ __forceinline__ void store_rows(const Tile& tile, const Pointers& at, const SumPlace& place,
                                           const float (&of_row)[BM], const float (&out)[SUMS]) {
    bool is_good = true;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int row = tile.tile * BM + place.row_of(i);
        if (row >= tile.sequence.count * GROUP) continue;
        const float factor = of_row[place.row_of(i)];
        const u64 to = ((u64)(tile.sequence.first + row / GROUP) * HEADS + tile.head * GROUP + row % GROUP) * D + place.column;
        float x[COLUMNS];
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            x[j] = out[i * COLUMNS + j] * factor;
            is_good &= fabsf(x[j]) <= LARGEST || !(factor <= LARGEST);
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; j += 4) {
            if constexpr (WIDE_Q)
                *(float4*)((float*)at.out + to + j) = {settle(x[j]), settle(x[j + 1]), settle(x[j + 2]), settle(x[j + 3])};
            else
                *(ushort4*)((u16*)at.out + to + j) = {settled_narrow(x[j]), settled_narrow(x[j + 1]), settled_narrow(x[j + 2]),
                                                      settled_narrow(x[j + 3])};
        }
    }
    if (!is_good) *at.fault = BAD_VALUE;
}

extern "C" __global__ void __launch_bounds__(THREADS + 128, 1)
    attention_prompts(const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, Batch batch, Pointers at,
                      Numbers with) {
    extern __shared__ __align__(1024) u8 bytes[];
    __shared__ __align__(16) Shared shared;
    const u32 memory = shared_at(bytes);
    const u32 warp = warp_index(), lane = threadIdx.x % 32, thread = threadIdx.x;
    if (thread == 0) {
        for (int i = 0; i < 2; i++) {
            barrier_init(shared_at(shared.narrow_full + i), 1), barrier_init(shared_at(shared.narrow_empty + i), WARPS);
            barrier_init(shared_at(shared.scores_full + i), 1), barrier_init(shared_at(shared.scores_empty + i), 1);
            barrier_init(shared_at(shared.number_full + i), 1), barrier_init(shared_at(shared.number_empty + i), WARPS);
        }
        barrier_init(shared_at(&shared.stored), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    wait_for_previous();
    const Work work(batch, with.window);
    if (warp >= WARPS) {
        give_registers<24>();
        if (warp == WARPS) copy_blocks(k, v, work, at, with, shared, memory, lane);
        return;
    }
    take_registers<240>();
    const ScorePlace score_place(warp, lane);
    const SumPlace sum_place(warp, lane);
    float* const kept = at.scores + (u64)blockIdx.x * with.room * BM;
    float* const saved = at.sums + (u64)blockIdx.x * (SUMS * THREADS) + thread * 4;
    const Cuts cuts(memory);
    Ring<2> narrow, score, number_ring;
    auto wide_at = [&](int nth) { return memory + WIDE + nth % 2 * WIDE_BYTES; };
    auto await_narrow = [&] {  // returns where the next block lies
        wait_barrier(shared_at(shared.narrow_full + narrow.stage), narrow.parity);
        return memory + NARROW + narrow.stage * NARROW_BYTES;
    };
    auto release_narrow = [&] {
        __syncwarp();
        if (lane == 0) arrive(shared_at(shared.narrow_empty + narrow.stage));
        narrow.next();
    };

    while (true) {
        wait_barrier(shared_at(shared.number_full + number_ring.stage), number_ring.parity);
        const int number = shared.numbers[number_ring.stage];
        __syncwarp();
        if (lane == 0) arrive(shared_at(shared.number_empty + number_ring.stage));
        number_ring.next();
        if (number >= work.total) break;
        const Tile tile = work.at(number);
        const Seen& seen = tile.seen;
        const Sequence& sequence = tile.sequence;
        if (CAUSAL && sequence.count > sequence.length) *at.fault = BAD_COUNT;
        const int row = tile.tile * BM + own_row();
        const bool is_row = row < sequence.count * GROUP;
        float most[ROWS_OF_LANE] = {NEG_INF, NEG_INF}, largest = NEG_INF, sink = NEG_INF;
        if (HAS_SINKS && is_row) {
            sink = at.sinks[tile.head * GROUP + row % GROUP];
            if (!(sink <= LARGEST)) *at.fault = BAD_SINKS, sink = NEG_INF;
        }
        RowTotal total;
        Segment segment(seen, with.room);
        while (true) {
            const int scored_end = segment.scored_end(seen);
            auto widen_next = [&](int nth) {
                widen_keys(await_narrow(), wide_at(nth));
                release_narrow();
            };
            sync_computing();  // what lay in the queries' place has been read
            load_queries(tile, at, with, memory + QUERIES);
            if (segment.first < scored_end) widen_next(0);
            sync_computing();
            for (int block = segment.first, nth = 0; block < scored_end; block++, nth++) {
                const u32 scores = memory + SCORES + nth % 2 * SCORE_BYTES;
                score_block(memory + QUERIES, wide_at(nth), scores, score_place, tile, block, with, most);
                if (block + 1 < scored_end) widen_next(nth + 1);
                fence_copies();
                if (thread == 0) wait_until_read();  // of the block before: the next one takes its place
                sync_computing();
                if (thread == 0 && block < segment.end)
                    start_storing(kept + (u64)(block - segment.first) * (BM * BN), scores);
            }
            if (thread == 0 && segment.first < segment.end) {
                wait_until_stored();
                arrive(shared_at(&shared.stored));
            }
            if (segment.first == seen.first) {
#pragma unroll
                for (int r = 0; r < ROWS_OF_LANE; r++) {
                    most[r] = larger(most[r], __shfl_xor_sync(~0u, most[r], 1));
                    most[r] = larger(most[r], __shfl_xor_sync(~0u, most[r], 2));
                    if (score_place.x == 0) shared.of_row[score_place.row + r] = most[r];
                }
                sync_computing();
                largest = larger(shared.of_row[own_row()], sink);
                if (is_row && !(largest <= LARGEST)) *at.fault = BAD_SCORE;
            }

            auto prepare = [&](int block, int nth) {  // values and weights of a block
                widen_values(await_narrow(), wide_at(nth), lowest_of(tile, with.window) - block * BN,
                             sequence.length - block * BN);
                release_narrow();
                wait_barrier(shared_at(shared.scores_full + score.stage), score.parity);
                weigh_block(memory + SCORES + score.stage * SCORE_BYTES, largest == NEG_INF ? 0.0f : largest,
                            block + 1 == segment.end || (block + 1) % (CUT / BN) == 0, total);
            };
            float sums[SUMS] = {};
            cuts.begin(segment.first > seen.first ? saved : nullptr);
            if (segment.first < segment.end) prepare(segment.first, 0);
            sync_computing();
            for (int block = segment.first, nth = 0; block < segment.end; block++, nth++) {
                const int runs = min(sequence.length - block * BN + RUN - 1, BN) / RUN;
                add_block(memory + SCORES + score.stage * SCORE_BYTES, wide_at(nth), sum_place, runs, sums);
                if (block + 1 == segment.end || (block + 1) % (CUT / BN) == 0) cuts.add(sums);
                const u32 used = score.stage;
                score.next();
                if (block + 1 < segment.end) prepare(block + 1, nth + 1);
                fence_copies();
                sync_computing();
                if (thread == 0) arrive(shared_at(shared.scores_empty + used));
            }
            if (!segment.next(seen, with.room)) break;
            cuts.save(saved);  // queries come to their place
        }
        if (HAS_SINKS) total.all += exp_of(sink - (largest == NEG_INF ? 0.0f : largest));
        const float factor = total.all > 0.0f ? recip(total.all) : 0.0f;
        if (lane < 16) shared.of_row[own_row()] = largest <= LARGEST ? factor : -NEG_INF;
        sync_computing();
        float out[SUMS];
        cuts.load(out);
        store_rows(tile, at, sum_place, shared.of_row, out);
    }
}
