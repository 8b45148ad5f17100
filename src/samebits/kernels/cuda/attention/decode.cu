// Attention of sequences with one query, the portable tier's: the definition's sums, in its order.
//
// Blocks stay and take stretches of cuts, of one part of the heads: first the scores of all positions and their maximum, then
// the weights and values. Eight warps take the runs of 16 positions in turn, each with a ring of its own that copies fill ahead,
// also from the next stretch; a ninth finds the stretches. Where a sequence has several stretches, their blocks wait for each
// other's maxima, and the one that ends last adds the cuts.
// Compiled with D (head size), HEADS (of a part), GROUP, PARTS, PAGE, STRIDE (of a position), BF16 (the cache's
// type), WIDE_Q (float32 queries and results, else the cache's), CAUSAL, WINDOW, HAS_TABLE, HAS_SINKS: 0 or 1; constants of the
// arithmetic, numbers of faults.
#include "numbers.cuh"
#include "stretches.cuh"

static constexpr int WARPS = 8, THREADS = 32 * WARPS;  // that compute
static constexpr int HEADS_UP = HEADS == 3 ? 4 : HEADS;
static constexpr int SLOT_BYTES = RUN * D * 2;
static constexpr int LANES = D / 8, ROWS = 32 / LANES;             // lanes of a key, keys of an instruction
static constexpr int STEPS = RUN / ROWS;                           // to read all keys of a run
static constexpr int TOGETHER = LANES / HEADS_UP < STEPS ? LANES / HEADS_UP : STEPS;  // steps whose sums are joined at once
static constexpr int SUMS = TOGETHER * HEADS_UP;
static constexpr int COLUMNS = D / 32;                             // of a lane
static constexpr int OUTPUTS = 2, OWNERS = HEADS * D / OUTPUTS;  // of a thread; threads that have some
static constexpr int STATE = 16;                                   // words of a sequence and part among the counters

struct Pointers {
    const void* q;
    const u16 *k, *v;
    const float* sinks;
    void* out;
    float *far, *cuts;  // scores that shared memory has no room for; sums of cuts
    int *fault, *counters;
};

struct Numbers {
    int q_token, q_head, window, most_cuts, most_count, far_room, num_slots;
    long long k_page, k_head, v_page, v_head;
    float scale;
};

struct Shared {
    Stretch stretches[2];
    u64 full[2], empty[2], may_draw;
    float largest[WARPS][HEADS_UP], totals[WARPS][HEADS_UP], joined[HEADS_UP];
    int is_last;
};

__device__ __forceinline__ u32 ordered(float x) {  // greater numbers have greater bits, and all are above zero
    const u32 bits = __float_as_uint(x);
    return bits >> 31 ? ~bits : bits | 0x80000000;
}
__device__ __forceinline__ float from_ordered(u32 x) { return __uint_as_float(x >> 31 ? x & 0x7FFFFFFF : ~x); }

// Whether a barrier's phase has ended; a whole warp asks.
__device__ __forceinline__ bool is_complete(u32 barrier, u32 parity, int lane) {
    u32 is_done = 0;
    if (lane == 0)
        asm volatile(
            "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
            : "=r"(is_done)
            : "r"(barrier), "r"(parity)
            : "memory");
    return __shfl_sync(~0u, is_done, 0);
}

// Runs of keys and values on their way, in the order in which they are needed. The next stretch may not be known when its first
// runs could be copied: they are then owed, and copied as soon as it is.
struct Ahead {
    const Pointers& at;
    const Numbers& with;
    const Batch& batch;
    Shared& shared;
    u32 ring;
    int warp, lane, nth = 0, slot = 0, run = 0, page = 0, owed = SLOTS;
    bool is_between = true, is_values = false;
    Stretch s;

    __device__ __forceinline__ int first() const { return s.first_run / WARPS * WARPS + warp; }

    __device__ __forceinline__ void find() {  // the page of the next run, long before it is needed
        if (run >= s.first_run && run < s.end_run) page = HAS_TABLE ? batch.kv_indices[s.entry + run * RUN / PAGE] : s.entry;
    }
    // Copies what is owed, as far as stretches are known.
    __device__ __forceinline__ void copy() {
        for (; owed; owed--) {
            if (is_between) {
                if (!is_complete(shared_at(shared.full + nth % 2), nth / 2 % 2, lane)) return;
                s = shared.stretches[nth % 2], run = first(), is_between = is_values = false;
                find();
            }
            if (s.count) {
                if (run >= s.first_run && run < s.end_run) copy_run();
                run += WARPS;
                if (run - warp >= s.end_run) {
                    run = first();
                    if (is_values) nth++, is_between = true;
                    is_values = true;
                }
                if (!is_between) find();
            }
            asm volatile("cp.async.commit_group;" ::: "memory");
            if (++slot == SLOTS) slot = 0;
        }
    }
    // Returns when the next run is there: copies end in order.
    __device__ __forceinline__ void await() {
        if (owed)
            asm volatile("cp.async.wait_group 0;" ::: "memory");
        else
            asm volatile("cp.async.wait_group %0;" ::"n"(SLOTS - 1) : "memory");
        __syncwarp();
    }
    // The oldest run has been used.
    __device__ __forceinline__ void next() { owed++, copy(); }
    __device__ __forceinline__ void copy_run() {
        const u16* const cells = is_values ? at.v : at.k;
        const long long page_stride = is_values ? with.v_page : with.k_page;
        const long long head_stride = is_values ? with.v_head : with.k_head;
        const bool exists = (u32)page < (u32)batch.num_pages;
        if (!exists) *at.fault = BAD_PAGE;
        const int position = run * RUN, row = lane / LANES;
        const long long place = HAS_TABLE ? position % PAGE : position;
        const u16* from = cells + (exists ? page : 0) * page_stride + s.part * HEADS / GROUP * head_stride + place * STRIDE
                          + row * STRIDE + lane % LANES * 8;
        const u32 to = ring + slot * SLOT_BYTES + row * (D * 2) + lane % LANES * 16;
        const int low = s.low - position - row, high = s.length - position - row;
#pragma unroll
        for (int i = 0; i < RUN; i += ROWS) {
            const int bytes = i < high && (!WINDOW || i >= low) ? 16 : 0;  // the rest is zeros: what lies there may be no number
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + i * (D * 2)), "l"(from + i * STRIDE),
                         "r"(bytes)
                         : "memory");
        }
    }
};

// Eight elements of every head's query, from `element` on.
__device__ __forceinline__ void load_queries(const Pointers& at, const Numbers& with, const Stretch& s, int element,
                                             float (&q)[HEADS][8]) {
    bool is_good = true;
#pragma unroll
    for (int g = 0; g < HEADS; g++) {
        const u64 start = (u64)s.token * with.q_token + (s.part * HEADS + g) * with.q_head + element;
        if constexpr (WIDE_Q) {
            const float4 low = *(const float4*)((const float*)at.q + start), high = *(const float4*)((const float*)at.q + start + 4);
            q[g][0] = low.x, q[g][1] = low.y, q[g][2] = low.z, q[g][3] = low.w;
            q[g][4] = high.x, q[g][5] = high.y, q[g][6] = high.z, q[g][7] = high.w;
        } else {
            const uint4 x = *(const uint4*)((const u16*)at.q + start);
            widen(x.x, q[g][0], q[g][1]), widen(x.y, q[g][2], q[g][3]), widen(x.z, q[g][4], q[g][5]), widen(x.w, q[g][6], q[g][7]);
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            if (WIDE_Q) q[g][j] = operand(q[g][j]);
            const bool is_fine = fabsf(q[g][j]) <= LARGEST_OPERAND;
            is_good &= is_fine, q[g][j] = is_fine ? q[g][j] : 0.0f;
        }
    }
    if (!is_good) *at.fault = BAD_QUERY;
}

// Adjacent pairs over the lanes of a key, of all sums at once: a lane ends with that of number `sum_of_lane`.
template <int MASK = 1, int COUNT = SUMS / 2>
__device__ __forceinline__ float join_lanes(float (&x)[SUMS], int lane) {
    if constexpr (MASK == LANES) {
        return x[0];
    } else {
        const bool is_high = lane & MASK;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const float given = is_high ? x[i] : x[i + COUNT], kept = is_high ? x[i + COUNT] : x[i];
            x[i] = kept + __shfl_xor_sync(~0u, given, MASK);
        }
        if (COUNT == 0) x[0] += __shfl_xor_sync(~0u, x[0], MASK);
        return join_lanes<MASK * 2, COUNT / 2>(x, lane);
    }
}
__device__ __forceinline__ int sum_of_lane(int lane) {
    int number = 0;
#pragma unroll
    for (int mask = 1, count = SUMS / 2; count > 0; mask *= 2, count /= 2) number += lane & mask ? count : 0;
    return number;
}

// Scores of a run of keys in shared memory, to scores [16][HEADS_UP]; their maximum, of the head that a lane's sums are of.
__device__ __forceinline__ float score_run(u32 keys, const float (&q)[HEADS][8], float* scores, const Stretch& s, int run,
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
                         : "r"(keys + ((first + i) * ROWS + lane / LANES) * (D * 2) + lane % LANES * 16));
#pragma unroll
            for (int j = 0; j < 4; j++) widen(pairs[j], k[2 * j], k[2 * j + 1]);
#pragma unroll
            for (int g = 0; g < HEADS_UP; g++) {
                float sum = 0.0f;
                if (g < HEADS)
#pragma unroll
                    for (int j = 0; j < 8; j++) sum = fmaf(k[j], q[g < HEADS ? g : 0][j], sum);
                x[i * HEADS_UP + g] = sum;
            }
        }
        float score = join_lanes(x, lane);
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

// A run's weights, in the place of its scores; the sum of what they were before rounding, of head lane % HEADS_UP.
__device__ __forceinline__ float weigh_run(float* scores, float shift, int lane) {
    constexpr int COUNT = (RUN * HEADS_UP + 31) / 32;
    float p[COUNT];
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        const int i = n * 32 + lane;
        const bool is_one = RUN * HEADS_UP >= 32 || i < RUN * HEADS_UP;
        p[n] = exp_of((is_one ? scores[i] : NEG_INF) - shift);
        if (is_one) scores[i] = operand(p[n]);
    }
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < RUN; i++) total += __shfl_sync(~0u, p[i * HEADS_UP / 32], i * HEADS_UP % 32 + lane % HEADS_UP);
    return total;
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

// Of a thread: sums of OUTPUTS neighbouring columns of a head, and of the head's weights.
struct Sums {
    float out[OUTPUTS] = {}, total = 0.0f;

    __device__ __forceinline__ void add(const Sums& x) {
#pragma unroll
        for (int j = 0; j < OUTPUTS; j++) out[j] += x.out[j];
        total += x.total;
    }
};

// What the ninth warp does; counters as in prefill.cu. No block draws a stretch while it waits for others of a sequence: they
// could be waiting for that one.
__device__ __forceinline__ void find_stretches(const Stretches& all, Shared& shared, int* counters, int lane) {
    for (int number = blockIdx.x, nth = 0;; nth++) {
        if (nth >= 2) wait_barrier(shared_at(shared.empty + nth % 2), nth / 2 % 2 ^ 1);
        const Stretch s = all.at(number);
        if (lane == 0) {
            shared.stretches[nth % 2] = s;
            arrive(shared_at(shared.full + nth % 2));
        }
        if (nth == 0) wait_for_previous();
        if (s.count == 0) break;
        wait_barrier(shared_at(&shared.may_draw), nth % 2);
        if (lane == 0) number = gridDim.x + atomicAdd(counters, 1);
        number = __shfl_sync(~0u, number, 0);
    }
    if (lane == 0) {
        __threadfence();
        if (atomicAdd(counters + 1, 1) == gridDim.x - 1) counters[0] = counters[1] = 0;
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

// Rows that no sequence has, and those of a sequence without positions; and what is wrong with the batch.
__device__ __forceinline__ void clear_rows(const Pointers& at, const Batch& batch) {
    auto clear = [&](int token) {
        const u64 to = (u64)token * (PARTS * HEADS * D);
        for (int i = threadIdx.x; i < PARTS * HEADS * D; i += THREADS) {
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
        if (threadIdx.x == 0) {
            if (!batch.is_sound(b)) *at.fault = BAD_TABLE;
            if (CAUSAL && s.count > s.length) *at.fault = BAD_COUNT;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS + 32, 2) attention_decode(Batch batch, Pointers at, Numbers with) {
    extern __shared__ __align__(16) u8 memory[];
    __shared__ __align__(8) Shared shared;
    float* const near = (float*)(memory + WARPS * SLOTS * SLOT_BYTES);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, thread = threadIdx.x;
    if (thread == 0) {
        for (int i = 0; i < 2; i++) {
            barrier_init(shared_at(shared.full + i), 1);
            barrier_init(shared_at(shared.empty + i), WARPS);
        }
        barrier_init(shared_at(&shared.may_draw), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (warp == WARPS) {
        find_stretches({batch, with.window, with.most_cuts, with.most_count}, shared, at.counters, lane);
        return;
    }
    wait_for_previous();
    const u32 rings = shared_at(memory), ring = rings + warp * (SLOTS * SLOT_BYTES);
    Ahead ahead = {at, with, batch, shared, ring, warp, lane};
    bool is_wrong = false;
    const int own_head = thread * OUTPUTS / D;

    for (int nth = 0, slot = 0;; nth++) {
        wait_barrier(shared_at(shared.full + nth % 2), nth / 2 % 2);
        const Stretch s = shared.stretches[nth % 2];
        if (s.count == 0) break;
        ahead.copy();
        const int base = s.first_run / WARPS * WARPS;
        const int is_far = (s.end_run - base) * (RUN * HEADS_UP) > NEAR_SCORES;
        float* const scores = is_far ? at.far + (u64)blockIdx.x * with.far_room : near;
        int* const state = at.counters + STATE * (1 + s.sequence * PARTS + s.part);
        if (s.count == 1 && thread == 0) arrive(shared_at(&shared.may_draw));
        float q[HEADS][8], most = NEG_INF;
        load_queries(at, with, s, lane % LANES * 8, q);

        for (int run = base + warp; run - warp < s.end_run; run += WARPS) {
            ahead.await();
            if (run >= s.first_run && run < s.end_run)
                most = fmaxf(most, score_run(ring + slot * SLOT_BYTES, q, scores + (run - base) * (RUN * HEADS_UP), s, run,
                                             with.scale, lane, is_wrong));
            __syncwarp();
            ahead.next();
            if (++slot == SLOTS) slot = 0;
        }
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

        Sums row, cut;
        for (int run = base + warp; run - warp < s.end_run; run += WARPS) {
            float sums[HEADS][COLUMNS] = {}, total = 0.0f;
            const u32 values = ring + slot * SLOT_BYTES;
            ahead.await();
            if (run >= s.first_run && run < s.end_run) {
                float* const weights = scores + (run - base) * (RUN * HEADS_UP);
                total = weigh_run(weights, shift, lane);
                __syncwarp();
                sum_run(values, weights, sums, lane);
            }
            __syncwarp();  // the values have been read: sums of the run take their place
#pragma unroll
            for (int g = 0; g < HEADS; g++) {
                const u32 to = values + (g * D + lane * COLUMNS) * 4;
                if constexpr (COLUMNS == 4)
                    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(sums[g][0]), "f"(sums[g][1]),
                                 "f"(sums[g][2]), "f"(sums[g][3])
                                 : "memory");
                else
                    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(sums[g][0]), "f"(sums[g][1]) : "memory");
            }
            if (lane < HEADS_UP) shared.totals[warp][lane] = total;
            sync_some(1, THREADS);
            if (thread < OWNERS) {
#pragma unroll
                for (int w = 0; w < WARPS; w++) {
                    Sums of_run;
                    const u32 from = rings + (w * SLOTS + slot) * SLOT_BYTES + thread * (OUTPUTS * 4);
                    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(of_run.out[0]), "=f"(of_run.out[1]) : "r"(from));
                    of_run.total = shared.totals[w][own_head];
                    cut.add(of_run);
                }
                const int next = run - warp + WARPS;
                if (next % CUT_RUNS == 0 || next >= s.end_run) {
                    if (s.count == 1) {
                        row.add(cut);
                    } else {
                        const u64 nth_cut = (u64)s.part * with.num_slots + (u64)s.entry * batch.page_size / CUT + s.sequence
                                            + (run - warp) / CUT_RUNS;
                        float* const to = at.cuts + nth_cut * (HEADS * (D + 1));
#pragma unroll
                        for (int j = 0; j < OUTPUTS; j++) to[thread * OUTPUTS + j] = cut.out[j];
                        to[HEADS * D + own_head] = cut.total;
                    }
                    cut = {};
                }
            }
            sync_some(1, THREADS);  // the sums have been read
            ahead.next();
            if (++slot == SLOTS) slot = 0;
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
                const int first = s.low / CUT, end = (s.length + CUT - 1) / CUT;
                const u64 slot_of_row = (u64)s.part * with.num_slots + (u64)s.entry * batch.page_size / CUT + s.sequence;
                const float* const from = at.cuts + slot_of_row * (HEADS * (D + 1));
#pragma unroll 4
                for (int i = first; i < end; i++) {
                    Sums x;
#pragma unroll
                    for (int j = 0; j < OUTPUTS; j++) x.out[j] = __ldcg(from + i * (HEADS * (D + 1)) + thread * OUTPUTS + j);
                    x.total = __ldcg(from + i * (HEADS * (D + 1)) + HEADS * D + own_head);
                    row.add(x);
                }
            }
        }
        // Lanes hold the maximum and sink of head lane % HEADS_UP; a thread's outputs are of own_head.
        const float own_largest = __shfl_sync(~0u, largest, own_head % HEADS_UP), own_sink = __shfl_sync(~0u, sink, own_head % HEADS_UP);
        if (thread < OWNERS && (s.count == 1 || shared.is_last)) finish(at, s, thread, row, own_largest, own_sink);
        __syncwarp();
        if (lane == 0) arrive(shared_at(shared.empty + nth % 2));
    }
    if (is_wrong) *at.fault = BAD_SCORE;
    clear_rows(at, batch);
}
