// Attention of sequences with many queries, the fast tier's: matrix instructions of warpgroups, online softmax.
//
// A block stays and takes tiles of BM rows. A warp copies K and V of BN positions at a time, page by page, into rings of
// STAGES; two warpgroups own 64 rows each. Weights of positions are computed while those before are multiplied by values.
// Positions are walked from the last to the first: those that need a mask come first.
// Compiled with D (head size), HEADS, GROUP, PAGE (positions of a page), BN, STAGES, BF16 (the cache's type), WIDE_Q (float32
// queries and results, else the cache's), AHEAD (queries of the next tile are loaded while one ends), CAUSAL, WINDOW,
// HAS_TABLE, HAS_SINKS, HAS_LSE: 0 or 1.
#include "counters.cuh"
#include "operands.cuh"
#include "softmax.cuh"
#include "tiles.cuh"

static constexpr int CONSUMERS = 8;  // warps that compute
static constexpr int THREADS = 32 * CONSUMERS + 128;
static constexpr int STEPS_D = D / 16, STEPS_N = BN / 16;
static constexpr int STAGE_BYTES = BN * D * 2;
static constexpr int BOX = PAGE < BN ? PAGE : BN;  // positions of a copy
static constexpr int BOXES = BN / BOX * (D / 64);

struct Pointers {
    const void* q;
    const float* sinks;
    void* out;
    float* lse;
    int *fault, *counters;
};

struct Numbers {
    int fault_code, q_token, q_head, window;
    float scale;
};

struct Barriers {
    u64 k_full[STAGES], v_full[STAGES], k_empty[STAGES], v_empty[STAGES], number_full[2], number_empty[2];
};

// Shared by the warps of a block: barriers, and the numbers of its next tiles, which the copying warp draws.
struct Shared {
    Barriers barriers;
    int numbers[2];
};

// What the copying warp does.
__device__ __forceinline__ void copy(const TensorMap& k, const TensorMap& v, const Work& work, int* counters, u32 keys,
                                     u32 values, Shared& shared, int lane) {
    Barriers& barriers = shared.barriers;
    Ring<STAGES> k_ring, v_ring;
    Ring<2> ring;
    for (int number = blockIdx.x, coming;; number = __shfl_sync(~0u, coming, 0)) {
        wait_barrier(shared_at(barriers.number_empty + ring.stage), ring.parity ^ 1);
        if (lane == 0) {
            shared.numbers[ring.stage] = number;
            arrive(shared_at(barriers.number_full + ring.stage));
        }
        ring.next();
        if (number >= work.total) break;
        if (lane == 0) coming = gridDim.x + atomicAdd(counters, 1);
        const Tile tile = work.at(number);
        const Sequence& s = tile.sequence;
        auto load = [&](const TensorMap& map, u32 to, u64* full, u64* empty, Ring<STAGES>& ring, int block) {
            const u32 barrier = shared_at(full + ring.stage);
            wait_barrier(shared_at(empty + ring.stage), ring.parity ^ 1);
            if (lane == 0) expect_bytes(barrier, STAGE_BYTES);
            __syncwarp();
            for (int i = lane; i < BOXES; i += 32) {
                const int half = i % (D / 64), position = block * BN + i / (D / 64) * BOX;
                int page = s.entry, slot = position;
                if (HAS_TABLE) page = work.batch.page(s, position / PAGE, (s.length - 1) / PAGE), slot = position % PAGE;
                copy_box(to + ring.stage * STAGE_BYTES + half * (BN * 128) + i / (D / 64) * (BOX * 128), map, half * 64, slot,
                         tile.head, page, barrier);
            }
            ring.next();
        };
        for (int i = tile.seen.end - 1; i >= tile.seen.first - 1; i--) {
            if (i >= tile.seen.first) load(k, keys, barriers.k_full, barriers.k_empty, k_ring, i);
            if (i < tile.seen.end - 1) load(v, values, barriers.v_full, barriers.v_empty, v_ring, i + 1);
        }
    }
    end_drawing(counters, lane);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_prefill(const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, Batch batch, Pointers at,
                      Numbers with) {
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) Shared shared;
    Barriers& barriers = shared.barriers;
    const u32 keys = shared_at(memory), values = keys + STAGES * STAGE_BYTES;
    const int warp = warp_index(), lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(shared_at(barriers.k_full + i), 1), barrier_init(shared_at(barriers.v_full + i), 1);
            barrier_init(shared_at(barriers.k_empty + i), CONSUMERS), barrier_init(shared_at(barriers.v_empty + i), CONSUMERS);
        }
        for (int i = 0; i < 2; i++) {
            barrier_init(shared_at(barriers.number_full + i), 1);
            barrier_init(shared_at(barriers.number_empty + i), CONSUMERS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    wait_for_previous();
    Work work(batch, with.window);
    if (warp >= CONSUMERS) {
        give_registers<24>();
        if (warp == CONSUMERS) copy(k, v, work, at.counters, keys, values, shared, lane);
        return;
    }
    take_registers<240>();
    const int group = warp / 4, g = lane / 4, t = lane % 4;
    Ring<STAGES> k_ring, v_ring;
    Ring<2> number_ring;
    Tile next;
    Pair<WIDE_Q> raw[2][2 * STEPS_D];
    auto find = [&] {
        wait_barrier(shared_at(barriers.number_full + number_ring.stage), number_ring.parity);
        const int number = shared.numbers[number_ring.stage];
        __syncwarp();
        if (lane == 0) arrive(shared_at(barriers.number_empty + number_ring.stage));
        number_ring.next();
        if (number >= work.total) return false;
        next = work.at(number);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = next.tile * BM + warp * 16 + g + 8 * r;
            const int token = next.sequence.first + row / GROUP, query_head = next.head * GROUP + row % GROUP;
            const u64 start = (u64)token * with.q_token + (u64)query_head * with.q_head;
#pragma unroll
            for (int i = 0; i < 2 * STEPS_D; i++)
                raw[r][i] = row < next.sequence.count * GROUP ? load_pair<WIDE_Q>(at.q, start + 8 * i + 2 * t)
                                                              : Pair<WIDE_Q>{};
        }
        return true;
    };
    bool is_left = !AHEAD || find();
    while (AHEAD ? is_left : find()) {
        const Tile here = next;
        const Sequence& sequence = here.sequence;
        const Seen& seen = here.seen;
        const int row = here.tile * BM + warp * 16 + g, num_rows = sequence.count * GROUP;
        u32 q[STEPS_D][4];
        bool is_finite = true;
#pragma unroll
        for (int i = 0; i < 4 * STEPS_D; i++) {
            q[i / 4][i % 4] = narrow_pair<BF16>(raw[i % 2][i / 2]);
            is_finite &= both_finite<BF16>(q[i / 4][i % 4]);
        }
        if (!is_finite) *at.fault = with.fault_code;
        float o[D / 2] = {}, s[4 * COLUMNS];
        Softmax softmax;
        u32 p[STEPS_N][4];
        float alpha[2];

        auto score = [&] {  // asks for the scores of the next keys
            wait_barrier(shared_at(barriers.k_full + k_ring.stage), k_ring.parity);
            begin_products();
            const u64 matrix = rows_at(keys + k_ring.stage * STAGE_BYTES);
#pragma unroll
            for (int i = 0; i < STEPS_D; i++)
                multiply<BF16, false>(s, q[i], matrix + i / 4 * (BN * 128 / 16) + i % 4 * 2, i > 0);
            end_products();
        };
        auto weigh = [&](int block) {
            keep(s);
            if (lane == 0) arrive(shared_at(barriers.k_empty + k_ring.stage));
            k_ring.next();
            if (block >= seen.masked) {
#pragma unroll
                for (int i = 0; i < 4 * COLUMNS; i++) {
                    const int position = block * BN + i / 4 * 8 + 2 * t + i % 2;
                    const int own = sequence.length - sequence.count + (row + i % 4 / 2 * 8) / GROUP;
                    bool is_seen = position <= (CAUSAL ? own : sequence.length - 1);
                    if (WINDOW) is_seen &= position >= own - with.window;
                    s[i] = is_seen ? s[i] : NEG_INF;
                }
            }
            softmax.weigh(s, with.scale, alpha);
        };
        auto narrow = [&] {
#pragma unroll
            for (int i = 0; i < 4 * STEPS_N; i++)
                p[i / 4][i % 4] = narrow_pair<BF16>(s[8 * (i / 4) + 2 * (i % 4)], s[8 * (i / 4) + 2 * (i % 4) + 1]);
        };
        auto add = [&](int block) {  // asks for the weights' products with the next values
            wait_barrier(shared_at(barriers.v_full + v_ring.stage), v_ring.parity);
            const u32 place = values + v_ring.stage * STAGE_BYTES;
            const int low = WINDOW && block == seen.first ? lowest_of(here, with.window) - block * BN : 0;
            const int high = sequence.length - block * BN;
            if (low > 0 || high < BN) {
                clear_unseen<D, BN, 128>(place, low, high, threadIdx.x % 128);
                sync_some(1 + group, 128);
            }
            begin_products();
            const u64 matrix = columns_at<BN>(place);
#pragma unroll
            for (int i = 0; i < STEPS_N; i++) multiply<BF16, true>(o, p[i], matrix + i * (16 * 128 / 16), true);
            end_products();
        };
        auto added = [&] {
            wait_products<0>();
            keep(o);
            if (lane == 0) arrive(shared_at(barriers.v_empty + v_ring.stage));
            v_ring.next();
        };
        auto rescale = [&] {
#pragma unroll
            for (int i = 0; i < D / 2; i++) o[i] *= alpha[i % 4 / 2];
        };

        if (seen.end > seen.first) {
            score();
            wait_products<0>();
            weigh(seen.end - 1);
            narrow();
            for (int block = seen.end - 2; block >= seen.first; block--) {
                // Waited for here, and not behind the weights, which a compiler would compute after it.
                if (block < seen.end - 2) added(), rescale(), narrow();
                score();
                add(block + 1);
                wait_products<1>();
                weigh(block);
            }
            if (seen.end - 1 > seen.first) added(), rescale(), narrow();
            add(seen.first);
        }
        if (AHEAD) is_left = find();
        if (seen.end > seen.first) added();

#pragma unroll
        for (int r = 0; r < 2; r++) {
            float total = softmax.total[r], m = softmax.m[r], factor = 1.0f;
            total += __shfl_xor_sync(~0u, total, 1);
            total += __shfl_xor_sync(~0u, total, 2);
            if (row + 8 * r >= num_rows) continue;
            const int token = sequence.first + (row + 8 * r) / GROUP;
            const int query_head = here.head * GROUP + (row + 8 * r) % GROUP;
            if (HAS_SINKS) {
                const float sink = at.sinks[query_head] * LOG2E, m_new = fmaxf(m, sink);
                const float shift = m_new == NEG_INF ? 0.0f : m_new;
                factor = exp2_near(m - shift), m = m_new;
                total = fmaf(total, factor, exp2_near(sink - shift));
            }
            factor = total > 0.0f ? factor / total : 0.0f;
            const u64 start = (u64)token * HEADS + query_head;
#pragma unroll
            for (int j = 0; j < D / 8; j++)
                store_pair<BF16, WIDE_Q>(at.out, start * D + 8 * j + 2 * t, o[4 * j + 2 * r] * factor,
                                         o[4 * j + 2 * r + 1] * factor);
            if (HAS_LSE && t == 0) at.lse[start] = total > 0.0f ? m + __log2f(total) : NEG_INF;
        }
    }
}
