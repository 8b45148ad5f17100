// Runs of keys and values on their way into shared memory, and the queries.
#pragma once
#include "block.cuh"
#include "boxes.cuh"

// What the copying warp does: lane w fills the ring of warp w, keys and values of its runs in the order of their use.
__device__ __forceinline__ void copy_runs(const TensorMap& keys, const TensorMap& values, const Batch& batch,
                                          const Pointers& at, const Numbers& with, Shared& shared, u32 rings, int lane) {
    Ring<SLOTS> ring;
    for (int nth = 0;; nth++) {
        wait_barrier(shared_at(shared.full + nth % 2), nth / 2 % 2);
        const Stretch s = shared.stretches[nth % 2];
        if (s.count == 0) break;
        const int base = s.first_run / CUT_RUNS * CUT_RUNS;
        auto page_of = [&](int run) {
            if (run < s.first_run || run >= s.end_run) return -1;
            const int page = HAS_TABLE ? batch.kv_indices[s.entry + run * RUN / PAGE] : s.entry;
            if ((u32)page < (u32)batch.num_pages) return page;
            *at.fault = BAD_PAGE;
            return 0;
        };
        const int first_page = lane < WARPS ? page_of(base + lane) : -1;
        if (nth == 0 && !with.is_second) wait_for_previous();
        if (lane == 0) {
            const u32 barrier = shared_at(shared.queried + nth % 2);
            const u8* const from = (const u8*)at.q + (u64)s.token * with.q_token * (QUERY_BYTES / D);
            expect_bytes(barrier, HEADS * QUERY_BYTES);
            for (int g = 0; g < HEADS; g++)
                copy_bulk(shared_at(shared.queries[nth % 2]) + g * QUERY_BYTES,
                          from + (u64)(s.part * HEADS + g) * with.q_head * (QUERY_BYTES / D), QUERY_BYTES, barrier);
        }
#pragma unroll 1
        for (int is_values = 0; is_values < 2; is_values++) {
            int page = first_page;
#pragma unroll 1
            for (int first = base; first < s.end_run; first += WARPS) {
                const int run = first + lane, next_page = lane < WARPS ? page_of(run + WARPS) : -1;
                if (lane < WARPS) {
                    const u32 barrier = shared_at(&shared.copied[lane][ring.stage]);
                    wait_barrier(shared_at(&shared.used[lane][ring.stage]), ring.parity ^ 1);
                    if (page < 0) {
                        arrive(barrier);
                    } else {
                        expect_bytes(barrier, SLOT_BYTES);
                        copy_box(rings + (lane * SLOTS + ring.stage) * SLOT_BYTES, is_values ? values : keys, 0,
                                 HAS_TABLE ? run * RUN % PAGE : run * RUN, s.part * HEADS / GROUP, page, barrier);
                    }
                }
                ring.next(), page = next_page;
            }
        }
    }
}
