// Attention of sequences with one query, the portable tier's: the definition's sums, in its order.
//
// Blocks stay and take stretches of cuts, of one part of the heads: first the scores of all positions and their maximum, then
// the weights and values. Eight warps take the runs of 16 positions in turn, each with a ring of its own; one warp fills the
// rings, ahead of the stretch in hand, and one finds stretches. Where a sequence has several stretches, their blocks wait for
// each other's maxima, and the one that ends last adds the cuts.
// Compiled with D (head size), HEADS (of a part), GROUP, PARTS, PAGE, SLOTS (of a ring), NEAR_RUNS (whose scores shared
// memory holds), BF16 (the cache's type), WIDE_Q (float32 queries and results, else the cache's), FAR (a stretch may have
// more than NEAR_RUNS), CAUSAL, WINDOW, HAS_TABLE, HAS_SINKS: 0 or 1; constants of the arithmetic, numbers of faults.
#include "counters.cuh"
#include "keys.cuh"
#include "rows.cuh"
#include "runs.cuh"
#include "warpgroup.cuh"

static constexpr int STATE = 16;  // words of a sequence and part among the counters

__device__ __forceinline__ u32 ordered(float x) {  // greater numbers have greater bits, and all are above zero
    const u32 bits = __float_as_uint(x);
    return bits >> 31 ? ~bits : bits | 0x80000000;
}
__device__ __forceinline__ float from_ordered(u32 x) { return __uint_as_float(x >> 31 ? x & 0x7FFFFFFF : ~x); }

// What the warp does that finds stretches. No block draws a stretch while it waits for others of a
// sequence: they could be waiting for that one.
__device__ __forceinline__ void find_stretches(const Stretches& all, Shared& shared, const Pointers& at, int lane) {
    for (int number = blockIdx.x, nth = 0;; nth++) {
        if (nth >= 2) wait_barrier(shared_at(shared.empty + nth % 2), nth / 2 % 2 ^ 1);
        const Stretch s = all.at(number);
        if (lane == 0) {
            shared.stretches[nth % 2] = s;
            arrive(shared_at(shared.full + nth % 2));
        }
        if (nth == 0) wait_for_previous(), clear_rows(at, all.batch, lane);
        if (s.count == 0) break;
        wait_barrier(shared_at(&shared.may_draw), nth % 2);
        draw(number, at.counters, lane);
    }
    end_drawing(at.counters, lane);
}

extern "C" __global__ void __launch_bounds__(THREADS + 128, 2)
    attention_decode(const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, Batch batch, Pointers at,
                     Numbers with) {
    extern __shared__ __align__(128) u8 memory[];
    __shared__ __align__(8) Shared shared;
    float* const near = (float*)(memory + WARPS * SLOTS * SLOT_BYTES);
    const int warp = warp_index(), lane = threadIdx.x % 32, thread = threadIdx.x;
    if (thread == 0) {
        for (int i = 0; i < 2; i++) {
            barrier_init(shared_at(shared.full + i), 1);
            barrier_init(shared_at(shared.empty + i), WARPS);
            barrier_init(shared_at(shared.queried + i), 1);
        }
        barrier_init(shared_at(&shared.may_draw), 1);
        for (int i = 0; i < WARPS * SLOTS; i++) {
            barrier_init(shared_at(&shared.copied[0][0] + i), 1);
            barrier_init(shared_at(&shared.used[0][0] + i), 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const u32 rings = shared_at(memory);
    if (warp >= WARPS) {
        give_registers<32>();
        if (warp == WARPS) copy_runs(k, v, batch, at, with, shared, rings, lane);
        if (warp == WARPS + 1) find_stretches({batch, with.window, with.most_cuts, with.most_count}, shared, at, lane);
        return;
    }
    take_registers<104>();
    if (FAR || !with.is_second) wait_for_previous();
    Ring<SLOTS> ring;
    auto await_run = [&] {  // returns where it is
        wait_barrier(shared_at(&shared.copied[warp][ring.stage]), ring.parity);
        return rings + (warp * SLOTS + ring.stage) * SLOT_BYTES;
    };
    auto release_run = [&] {
        if (lane == 0) arrive(shared_at(&shared.used[warp][ring.stage]));
        ring.next();
    };
    const int own_head = thread * OUTPUTS / D;
    bool is_wrong = false;

    for (int nth = 0;; nth++) {
        wait_barrier(shared_at(shared.full + nth % 2), nth / 2 % 2);
        const Stretch s = shared.stretches[nth % 2];
        if (s.count == 0) break;
        const int base = s.first_run / CUT_RUNS * CUT_RUNS;
        float* const scores = FAR && s.end_run - base > NEAR_RUNS ? at.far + (u64)blockIdx.x * with.far_room : near;
        int* const state = at.counters + STATE * (1 + s.sequence * PARTS + s.part);
        if (s.count == 1 && thread == 0) arrive(shared_at(&shared.may_draw));
        float q[HEADS_UP][8], most = NEG_INF;
        wait_barrier(shared_at(shared.queried + nth % 2), nth / 2 % 2);
        load_queries(shared.queries[nth % 2], at.fault, lane % LANES * 8, sum_of_lane(lane), q);

        for (int run = base + warp; run - warp < s.end_run; run += WARPS) {
            const u32 keys = await_run();
            if (run >= s.first_run && run < s.end_run)
                most = fmaxf(most, score_run(keys, q, scores + (run - base) * SCORES, s, run, with.scale, lane, is_wrong));
            __syncwarp();
            release_run();
        }
        if (nth == 0) wait_for_previous();  // from here on memory is written, which the launch before may use
        most = most_of_head(most);
        shared.largest[warp][sum_of_lane(lane) % HEADS_UP] = most;
        sync_some(1, THREADS);
        float largest = NEG_INF, sink = NEG_INF;
#pragma unroll
        for (int w = 0; w < WARPS; w++) largest = fmaxf(largest, shared.largest[w][lane % HEADS_UP]);
        if (s.count > 1) {
            if (warp == 0) {
                if (lane < HEADS) atomicMax((u32*)state + 1 + lane, ordered(largest));
                __threadfence();
                __syncwarp();
                if (lane == 0) {
                    atomicAdd(state, 1);
                    while ((*(volatile int*)state & 0xFFFF) < s.count) {
                    }
                    __threadfence();
                    arrive(shared_at(&shared.may_draw));
                }
                __syncwarp();
                if (lane < HEADS) shared.joined[lane] = from_ordered(((volatile u32*)state)[1 + lane]);
            }
            sync_some(1, THREADS);
            largest = shared.joined[lane % HEADS_UP];
        }
        if (HAS_SINKS) {
            sink = at.sinks[s.part * HEADS + (lane % HEADS_UP < HEADS ? lane % HEADS_UP : 0)];
            if (!(sink <= LARGEST)) *at.fault = BAD_SINKS;
            largest = fmaxf(largest, sink);
        }
        const float shift = largest == NEG_INF ? 0.0f : largest;

        Sums row;
        for (int first = base; first < s.end_run; first += CUT_RUNS) {
            // A warp's two runs of a cut: sums of the first stay in registers, so that its place is free at once.
            const bool has_more = first + WARPS < s.end_run;
            float sums[2][HEADS][COLUMNS];
            u32 values;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int run = first + half * WARPS + warp;
                if (half && !has_more) break;
                float* const weights = scores + (run - base) * SCORES;
                const bool is_here = run >= s.first_run && run < s.end_run;
                if (is_here) weigh_run(weights, shift, lane);
                values = await_run();
                if (is_here) {
                    if (run * RUN < s.low || (run + 1) * RUN > s.length) clear_unseen(values, s, run, lane);
                    sum_run(values, weights, sums[half], lane);
                }
                __syncwarp();  // the values have been read
                if (half == 0 && has_more) release_run();
            }
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int g = 0; g < HEADS; g++)
                    store_columns(values + ((half * HEADS + g) * D + lane * COLUMNS) * 4, sums[half][g]);
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // copies come after what was stored here
            sync_some(1, THREADS);
            if (thread < OWNERS) {
                Sums cut;
#pragma unroll
                for (int i = 0; i < CUT_RUNS; i++) {
                    if (first + i < s.first_run || first + i >= s.end_run) continue;
                    Sums of_run;
                    const u32 from = rings + (i % WARPS * SLOTS + ring.stage) * SLOT_BYTES + i / WARPS * (HEADS * D * 4);
                    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                                 : "=f"(of_run.out[0]), "=f"(of_run.out[1])
                                 : "r"(from + thread * (OUTPUTS * 4)));
                    of_run.total = scores[(first + i - base) * SCORES + RUN * HEADS_UP + own_head];
                    cut.add(of_run);
                }
                if (s.count == 1)
                    row.add(cut);
                else
                    store_cut(sums_of_cut(at, with, batch, s, first / CUT_RUNS), thread, own_head, cut);
            }
            sync_some(1, THREADS);  // the sums have been read
            release_run();
        }
        if (s.count > 1) {
            __threadfence();
            sync_some(1, THREADS);
            if (thread == 0) {
                shared.is_last = atomicAdd(state, 1 << 16) >> 16 == s.count - 1;
                if (shared.is_last)
                    for (int i = 0; i <= HEADS; i++) state[i] = 0;
            }
            sync_some(1, THREADS);
            __threadfence();
            if (shared.is_last && thread < OWNERS) {
#pragma unroll 4
                for (int i = s.low / CUT; i < (s.length + CUT - 1) / CUT; i++)
                    row.add(load_cut(sums_of_cut(at, with, batch, s, i), thread, own_head));
            }
        }
        // Lanes hold the maximum and sink of head lane % HEADS_UP; a thread's outputs are of own_head.
        const float own_largest = __shfl_sync(~0u, largest, own_head % HEADS_UP);
        const float own_sink = __shfl_sync(~0u, sink, own_head % HEADS_UP);
        if (thread < OWNERS && (s.count == 1 || shared.is_last)) finish(at, s, thread, row, own_largest, own_sink);
        __syncwarp();
        if (lane == 0) arrive(shared_at(shared.empty + nth % 2));
    }
    if (is_wrong) *at.fault = BAD_SCORE;
}
