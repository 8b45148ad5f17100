// Attention of sequences with one query, the portable tier's: the definition's sums, in its order.
//
// Blocks stay and take stretches of cuts, of one part of the heads: first the scores of all positions and their maximum, then
// the weights and values. Eight warps take the runs of 16 positions in turn, each with a ring of its own; one warp fills the
// rings, ahead of the stretch in hand, and one finds stretches. Where a sequence has several stretches, their blocks wait for each
// other's maxima, and the one that ends last adds the cuts.
// Compiled with D (head size), HEADS (of a part), GROUP, PARTS, PAGE, SLOTS (of a ring), NEAR_RUNS (whose scores
// shared memory holds), FAR (whether a stretch may have more), BF16 (the cache's type), WIDE_Q (float32 queries and results, else the cache's), CAUSAL, WINDOW, HAS_TABLE, HAS_SINKS: 0 or 1; constants of the
// arithmetic, numbers of faults.
#include "numbers.cuh"
#include "boxes.cuh"
#include "stretches.cuh"
#include "warpgroup.cuh"

static constexpr int WARPS = CUT_RUNS / 2, THREADS = 32 * WARPS;  // that compute
static constexpr int HEADS_UP = HEADS == 3 ? 4 : HEADS;
static constexpr int SLOT_BYTES = RUN * D * 2;
static constexpr int LANES = D / 8, ROWS = 32 / LANES;             // lanes of a key, keys of an instruction
static constexpr int STEPS = RUN / ROWS;                           // to read all keys of a run
static constexpr int TOGETHER = LANES / HEADS_UP < STEPS ? LANES / HEADS_UP : STEPS;  // steps whose sums are joined at once
static constexpr int SUMS = TOGETHER * HEADS_UP;
static constexpr int COLUMNS = D / 32;                             // of a lane
static constexpr int OUTPUTS = 2, OWNERS = HEADS * D / OUTPUTS;  // of a thread; threads that have some
static constexpr int SCORES = 17 * HEADS_UP;  // of a run, and the sums of its weights
static constexpr int QUERY_BYTES = D * (WIDE_Q ? 4 : 2);
static constexpr int STATE = 16;                                   // words of a sequence and part among the counters

struct Pointers {
    const void* q;
    const float* sinks;
    void* out;
    float *far, *cuts;  // scores that shared memory has no room for; sums of cuts
    int *fault, *counters;
};

struct Numbers {
    int q_token, q_head, window, most_cuts, most_count, far_room, num_slots;
    int is_second;  // of a call: the launch before reads what this one reads, and began when what wrote that had ended
    float scale;
};

struct Shared {
    alignas(16) u8 queries[2][HEADS * QUERY_BYTES];
    Stretch stretches[2];
    u64 full[2], empty[2], queried[2], may_draw, copied[WARPS][SLOTS], used[WARPS][SLOTS];
    float largest[WARPS][HEADS_UP], joined[HEADS_UP];
    int is_last;
};

__device__ __forceinline__ u32 ordered(float x) {  // greater numbers have greater bits, and all are above zero
    const u32 bits = __float_as_uint(x);
    return bits >> 31 ? ~bits : bits | 0x80000000;
}
__device__ __forceinline__ float from_ordered(u32 x) { return __uint_as_float(x >> 31 ? x & 0x7FFFFFFF : ~x); }

// What the copying warp does: lane w fills the ring of warp w, keys and values of its runs in the order of their use.
__device__ __forceinline__ void copy_runs(const TensorMap& keys, const TensorMap& values, const Batch& batch, const Pointers& at,
                                          const Numbers& with, Shared& shared, u32 rings, int lane) {
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

// The number of the sum, steps times HEADS_UP and head, that a lane ends with.
__device__ __forceinline__ int sum_of_lane(int lane) {
    int number = 0;
#pragma unroll
    for (int mask = 1, count = SUMS / 2; count > 0; mask *= 2, count /= 2) number += lane & mask ? count : 0;
    return number;
}

// Eight elements of every head's query, from `element` on; heads in a lane's order, see join_lanes.
__device__ __forceinline__ void load_queries(const u8* queries, int* fault, int element, int number, float (&q)[HEADS_UP][8]) {
    bool is_good = true;
#pragma unroll
    for (int g = 0; g < HEADS_UP; g++) {
        const int head = g ^ number % HEADS_UP;
        if (head >= HEADS) {
#pragma unroll
            for (int j = 0; j < 8; j++) q[g][j] = 0.0f;
            continue;
        }
        const u8* const from = queries + head * QUERY_BYTES + element * (QUERY_BYTES / D);
        if constexpr (WIDE_Q) {
            const float4 low = ((const float4*)from)[0], high = ((const float4*)from)[1];
            q[g][0] = low.x, q[g][1] = low.y, q[g][2] = low.z, q[g][3] = low.w;
            q[g][4] = high.x, q[g][5] = high.y, q[g][6] = high.z, q[g][7] = high.w;
        } else {
            const uint4 x = *(const uint4*)from;
            widen(x.x, q[g][0], q[g][1]), widen(x.y, q[g][2], q[g][3]), widen(x.z, q[g][4], q[g][5]), widen(x.w, q[g][6], q[g][7]);
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            if (WIDE_Q) q[g][j] = operand(q[g][j]);
            const bool is_fine = fabsf(q[g][j]) <= LARGEST_OPERAND;
            is_good &= is_fine, q[g][j] = is_fine ? q[g][j] : 0.0f;  // so that no key or value is blamed for it
        }
    }
    if (!is_good) *fault = BAD_QUERY;
}

// Adjacent pairs over the lanes of a key, of all sums at once. In place i a lane has the sum of number i ^ sum_of_lane(lane):
// so it keeps the lower half of its places and hands on the upper one, without a choice, and ends with place 0.
template <int MASK = 1, int COUNT = SUMS / 2>
__device__ __forceinline__ float join_lanes(float (&x)[SUMS]) {
    if constexpr (MASK == LANES) {
        return x[0];
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i++) x[i] += __shfl_xor_sync(~0u, x[i + COUNT], MASK);
        if (COUNT == 0) x[0] += __shfl_xor_sync(~0u, x[0], MASK);
        return join_lanes<MASK * 2, COUNT / 2>(x);
    }
}
// Scores of a run of keys in shared memory, to scores [16][HEADS_UP]; their maximum, of the head that a lane's sums are of.
__device__ __forceinline__ float score_run(u32 keys, const float (&q)[HEADS_UP][8], float* scores, const Stretch& s, int run,
                                           float scale, int lane, bool& is_wrong) {
    const int number = sum_of_lane(lane), head = number % HEADS_UP;
    float most = NEG_INF;
#pragma unroll
    for (int first = 0; first < STEPS; first += TOGETHER) {
        float x[SUMS];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            u32 pairs[4];
            float k[8];
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                         : "r"(keys + ((first + (i ^ number / HEADS_UP)) * ROWS + lane / LANES) * (D * 2) + lane % LANES * 16));
#pragma unroll
            for (int j = 0; j < 4; j++) widen(pairs[j], k[2 * j], k[2 * j + 1]);
#pragma unroll
            for (int g = 0; g < HEADS_UP; g++) {
                float sum = 0.0f;
#pragma unroll
                for (int j = 0; j < 8; j++) sum = fmaf(k[j], q[g][j], sum);
                x[i * HEADS_UP + g] = sum;
            }
        }
        float score = join_lanes(x);
        if (BF16) score = settle(score);
        score *= scale;
        const int row = (first + number / HEADS_UP) * ROWS + lane / LANES, position = run * RUN + row;
        const bool is_seen = position < s.length && (!WINDOW || position >= s.low) && (HEADS == HEADS_UP || head < HEADS);
        is_wrong |= is_seen && !(score <= LARGEST);
        score = is_seen ? score : NEG_INF;
        if (lane % LANES < SUMS) scores[row * HEADS_UP + head] = score;
        most = fmaxf(most, score);
    }
    return most;
}

// The maximum over the lanes whose sums are of the same head.
__device__ __forceinline__ float most_of_head(float most) {
#pragma unroll
    for (int mask = 1, count = SUMS / 2; mask < 32; mask *= 2, count /= 2)
        if (count >= HEADS_UP || count == 0) most = fmaxf(most, __shfl_xor_sync(~0u, most, mask));
    return most;
}

// A run's weights, in the place of its scores, and behind them the sums of what they were before rounding; shift: that of head
// lane % HEADS_UP.
__device__ __forceinline__ void weigh_run(float* scores, float shift, int lane) {
    constexpr int COUNT = (RUN * HEADS_UP + 31) / 32;
    float p[COUNT], total = 0.0f;
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        const int i = n * 32 + lane;
        const bool is_one = RUN * HEADS_UP >= 32 || i < RUN * HEADS_UP;
        p[n] = exp_of((is_one ? scores[i] : NEG_INF) - shift);
        if (is_one) scores[i] = operand(p[n]);
    }
#pragma unroll
    for (int i = 0; i < RUN; i++) total += __shfl_sync(~0u, p[i * HEADS_UP / 32], i * HEADS_UP % 32 + lane % HEADS_UP);
    if (lane < HEADS_UP) scores[RUN * HEADS_UP + lane] = total;
    __syncwarp();
}

// Zeros where values are not seen: what lies there may be no number.
__device__ __forceinline__ void clear_unseen(u32 values, const Stretch& s, int run, int lane) {
#pragma unroll
    for (int i = 0; i < RUN; i++) {
        const int position = run * RUN + i;
        if (position < s.low || position >= s.length)
            asm volatile("st.shared.v2.b32 [%0], {%1, %1};" ::"r"(values + i * (D * 2) + lane % (D / 4) * 8), "r"(0) : "memory");
    }
    __syncwarp();
}

// The chain of a run's weights times values, for every head and a lane's columns.
__device__ __forceinline__ void sum_run(u32 values, const float* weights, float (&sums)[HEADS][COLUMNS], int lane) {
#pragma unroll
    for (int i = 0; i < RUN; i++) {
        u32 pairs[COLUMNS / 2];
        const u32 place = values + i * (D * 2) + lane * (COLUMNS * 2);
        if constexpr (COLUMNS == 4)
            asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(pairs[0]), "=r"(pairs[1]) : "r"(place));
        else
            asm volatile("ld.shared.b32 %0, [%1];" : "=r"(pairs[0]) : "r"(place));
        float v[COLUMNS], p[HEADS_UP];
#pragma unroll
        for (int j = 0; j < COLUMNS / 2; j++) widen(pairs[j], v[2 * j], v[2 * j + 1]);
        if constexpr (HEADS_UP == 4) {
            const float4 four = *(const float4*)(weights + i * HEADS_UP);
            p[0] = four.x, p[1] = four.y, p[2] = four.z, p[3] = four.w;
        } else {
#pragma unroll
            for (int g = 0; g < HEADS; g++) p[g] = weights[i * HEADS_UP + g];
        }
#pragma unroll
        for (int g = 0; g < HEADS; g++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) sums[g][j] = fmaf(p[g], v[j], i ? sums[g][j] : 0.0f);
    }
}

__device__ __forceinline__ void store_columns(u32 to, const float (&x)[COLUMNS]) {
    if constexpr (COLUMNS == 4)
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
    else
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x[0]), "f"(x[1]) : "memory");
}

// Of a thread: sums of OUTPUTS neighbouring columns of a head, and of the head's weights.
struct Sums {
    float out[OUTPUTS] = {}, total = 0.0f;

    __device__ __forceinline__ void add(const Sums& x) {
#pragma unroll
        for (int j = 0; j < OUTPUTS; j++) out[j] += x.out[j];
        total += x.total;
    }
};

// Sums of a cut in memory: HEADS rows of D, then the sums of weights.
__device__ __forceinline__ float* sums_of_cut(const Pointers& at, const Numbers& with, const Batch& batch, const Stretch& s,
                                              int cut) {
    const u64 nth = (u64)s.part * with.num_slots + (u64)s.entry * batch.page_size / CUT + s.sequence + cut;
    return at.cuts + nth * (HEADS * (D + 1));
}
__device__ __forceinline__ void store_cut(float* to, int thread, int head, const Sums& x) {
#pragma unroll
    for (int j = 0; j < OUTPUTS; j++) to[thread * OUTPUTS + j] = x.out[j];
    to[HEADS * D + head] = x.total;
}
__device__ __forceinline__ Sums load_cut(const float* from, int thread, int head) {
    Sums x;
#pragma unroll
    for (int j = 0; j < OUTPUTS; j++) x.out[j] = __ldcg(from + thread * OUTPUTS + j);
    x.total = __ldcg(from + HEADS * D + head);
    return x;
}

// Rows that no sequence has, and those of a sequence without positions; and what is wrong with the batch.
__device__ __forceinline__ void clear_rows(const Pointers& at, const Batch& batch, int lane) {
    auto clear = [&](int token) {
        const u64 to = (u64)token * (PARTS * HEADS * D);
        for (int i = lane; i < PARTS * HEADS * D; i += 32) {
            if constexpr (WIDE_Q)
                ((float*)at.out)[to + i] = 0.0f;
            else
                ((u16*)at.out)[to + i] = 0;
        }
    };
    for (int token = max(batch.qo_indptr[batch.num_sequences], 0) + blockIdx.x; token < batch.num_tokens; token += gridDim.x)
        clear(token);
    for (int b = blockIdx.x; b < batch.num_sequences; b += gridDim.x) {
        const Sequence s = batch.at(b);
        if (s.count == 1 && s.length == 0) clear(s.first);
        if (lane == 0) {
            if (!batch.is_sound(b)) *at.fault = BAD_TABLE;
            if (CAUSAL && s.count > s.length) *at.fault = BAD_COUNT;
        }
    }
}

// What the warp does that finds stretches; counters as in prefill.cu. No block draws a stretch while it waits for others of a sequence: they
// could be waiting for that one.
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
        if (lane == 0) number = gridDim.x + atomicAdd(at.counters, 1);
        number = __shfl_sync(~0u, number, 0);
    }
    if (lane == 0) {
        __threadfence();
        if (atomicAdd(at.counters + 1, 1) == gridDim.x - 1) at.counters[0] = at.counters[1] = 0;
    }
}

// A row of a part's heads: the sums over the row's cuts become its result.
__device__ __forceinline__ void finish(const Pointers& at, const Stretch& s, int thread, const Sums& sums, float largest,
                                       float sink) {
    float total = sums.total;
    if (HAS_SINKS) total = total + exp_of(sink - (largest == NEG_INF ? 0.0f : largest));
    const bool is_seen = total > 0.0f;
    const float factor = is_seen ? recip(total) : 0.0f;
    const u64 to = ((u64)s.token * PARTS + s.part) * (HEADS * D) + thread * OUTPUTS;
    bool is_good = true;
#pragma unroll
    for (int j = 0; j < OUTPUTS; j++) {
        const float x = sums.out[j] * factor;
        is_good &= fabsf(x) <= LARGEST;
        if constexpr (WIDE_Q)
            ((float*)at.out)[to + j] = settle(x);
        else
            ((u16*)at.out)[to + j] = settled_narrow(x);
    }
    if (!is_good) *at.fault = BAD_VALUE;
}

extern "C" __global__ void __launch_bounds__(THREADS + 128, 2)
    attention_decode(const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, Batch batch, Pointers at,
                     Numbers with) {
    extern __shared__ __align__(128) u8 memory[];
    __shared__ __align__(8) Shared shared;
    float* const near = (float*)(memory + WARPS * SLOTS * SLOT_BYTES);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, thread = threadIdx.x;
    if (thread == 0) {
        for (int i = 0; i < 2; i++) {
            barrier_init(shared_at(shared.full + i), 1);
            barrier_init(shared_at(shared.empty + i), WARPS);
            barrier_init(shared_at(shared.queried + i), 1);
        }
        barrier_init(shared_at(&shared.may_draw), 1);
        for (int i = 0; i < WARPS * SLOTS; i++) barrier_init(shared_at(&shared.copied[0][0] + i), 1), barrier_init(shared_at(&shared.used[0][0] + i), 1);
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
