// Attention of sequences with few queries, the fast tier's: matrix instructions of warps, online softmax.
//
// Blocks stay and draw pieces: runs of 16 positions of a tile of rows, pairs (query, query head) of a KV head. Eight warps take
// the runs of a piece in turn, each with rings of its own for keys and values, and join their sums at its end. One warp fills
// the rings, ahead of the piece in hand, one finds pieces, and one clears rows that no sequence has and checks the table.
// Compiled with D (head size), HEADS, GROUP, PAGE, SLOTS (of a ring), BF16 (the cache's type), WIDE_Q (float32 queries and
// results, else the cache's), CAUSAL, WINDOW, HAS_TABLE, HAS_SINKS, HAS_LSE: 0 or 1.
#include "counters.cuh"
#include "joining.cuh"
#include "walk.cuh"

// What the warp does that finds pieces.
__device__ __forceinline__ void find_pieces(const Batch& batch, int window, Shared& shared, int* counters, int lane) {
    const Pieces all(batch, window, lane);
    Ring<2> ring;
    for (int number = blockIdx.x, nth = 0;; nth++, ring.next()) {
        wait_barrier(shared_at(shared.empty + ring.stage), ring.parity ^ 1);
        const Piece piece = all.at(number, lane);
        if (lane == 0) {
            shared.pieces[ring.stage] = piece;
            arrive(shared_at(shared.full + ring.stage));
        }
        if (piece.num_pieces == 0) break;
        if (nth == 0) wait_for_previous();
        draw(number, counters, lane);
    }
    wait_for_previous();
    end_drawing(counters, lane);
}

// What the copying warp does: a lane fills the ring of keys or of values of a warp, the others fetch a row's query each.
__device__ __forceinline__ void copy_pieces(const TensorMap& k, const TensorMap& v, const Batch& batch, const Pointers& at,
                                            const Numbers& with, Shared& shared, u32 rings, int lane) {
    const int warp = lane % WARPS, is_values = lane / WARPS, row = lane - 2 * WARPS;
    Ring<SLOTS> ring;
    Ring<2> next;
    for (int nth = 0;; nth++, next.next()) {
        wait_barrier(shared_at(shared.full + next.stage), next.parity);
        const Piece piece = shared.pieces[next.stage];
        if (piece.num_pieces == 0) break;
        const int last_run = (piece.length - 1) / RUN;
        auto page_of = [&](int run) {  // -1 where there is nothing to copy; one that does not exist is the cache's last
            if (run >= piece.end_run || piece.length == 0 || run > last_run) return -1;
            if (!HAS_TABLE) return piece.entry;
            return (int)min((u32)batch.kv_indices[piece.entry + run * RUN / PAGE], (u32)(batch.num_pages - 1));
        };
        int page = page_of(piece.first_run + warp);
        if (nth == 0) wait_for_previous();
        if (row >= 0) {
            const u32 barrier = shared_at(shared.queried + next.stage);
            const int own = piece.tile * ROWS + row, rows = min(piece.count * GROUP - piece.tile * ROWS, ROWS);
            if (row == 0) expect_bytes(barrier, rows * QUERY_BYTES);
            __syncwarp(0xFFFF0000);
            if (row < rows)
                copy_bulk(shared_at(shared.queries[next.stage]) + row * QUERY_BYTES,
                          (const u8*)at.q + ((u64)(piece.first + own / GROUP) * with.q_token
                                             + (u64)(piece.head * GROUP + own % GROUP) * with.q_head) * (QUERY_BYTES / D),
                          QUERY_BYTES, barrier);
        } else {
#pragma unroll 1
            for (int first = piece.first_run; first < piece.end_run; first += WARPS) {
                const int run = first + warp, next_page = page_of(run + WARPS);
                const u32 barrier = shared_at(&shared.copied[is_values][warp][ring.stage]);
                const u32 to = rings + ((is_values * WARPS + warp) * SLOTS + ring.stage) * SLOT_BYTES;
                if (run < piece.end_run) {
                    wait_barrier(shared_at(&shared.used[is_values][warp][ring.stage]), ring.parity ^ 1);
                    if (page < 0) {
                        arrive(barrier);
                    } else {
                        expect_bytes(barrier, SLOT_BYTES);
#pragma unroll
                        for (int box = 0; box < D / 64; box++)
                            copy_box(to + box * BOX_BYTES, is_values ? v : k, box * 64,
                                     HAS_TABLE ? run * RUN % PAGE : run * RUN, piece.head, page, barrier);
                    }
                    ring.next();
                }
                page = next_page;
            }
        }
        __syncwarp();
    }
}

// Zeros where no sequence has a row, and the table's pages, which all must exist.
__device__ __forceinline__ void clear_and_check(const Batch& batch, const Pointers& at, const Numbers& with, int lane) {
    for (int i = blockIdx.x * 32 + lane; HAS_TABLE && i < min(batch.kv_indptr[batch.num_sequences], batch.num_indices);
         i += gridDim.x * 32)
        if ((u32)batch.kv_indices[i] >= (u32)batch.num_pages) *at.fault = with.bad_page;
    wait_for_previous();
    for (int token = max(batch.qo_indptr[batch.num_sequences], 0) + blockIdx.x; token < batch.num_tokens; token += gridDim.x) {
        for (int i = lane * 2; i < HEADS * D; i += 64) store_pair<BF16, WIDE_Q>(at.out, (u64)token * HEADS * D + i, 0.0f, 0.0f);
        for (int i = lane; HAS_LSE && i < HEADS; i += 32) at.lse[(u64)token * HEADS + i] = NEG_INF;
    }
}

// What a warp does with its runs of a block's nth piece, of at most NT * 8 rows.
template <int NT>
__device__ __forceinline__ void walk(const Piece& piece, const Numbers& with, const u8* queries, int* fault, Shared& shared,
                                     u32 rings, Ring<SLOTS>& ring, Joined& joined, int nth, int warp, int lane) {
    Walk<NT> own;
    if (!own.load_queries(queries, piece.count * GROUP - piece.tile * ROWS, lane)) *fault = with.bad_query;
    auto await = [&](int is_values) {  // a run's keys or values: where they are
        wait_barrier(shared_at(&shared.copied[is_values][warp][ring.stage]), ring.parity);
        return rings + ((is_values * WARPS + warp) * SLOTS + ring.stage) * SLOT_BYTES;
    };
    auto release = [&](int is_values) {
        __syncwarp();
        if (lane == 0) arrive(shared_at(&shared.used[is_values][warp][ring.stage]));
    };
    for (int run = piece.first_run + warp; run < piece.end_run; run += WARPS, ring.next()) {
        float s[NT][4] = {};
        own.score(await(0), s, lane);
        release(0);
        if (WINDOW || (run + 1) * RUN > piece.length - (CAUSAL ? piece.count - 1 : 0))
            own.mask(s, piece, run, with.window, lane);
        own.weigh(s, with.scale);
        const u32 values = await(1);
        const int low = WINDOW ? piece.length - piece.count - with.window - run * RUN : 0, high = piece.length - run * RUN;
        if (low > 0 || high < RUN) {
            clear_unseen<D, RUN, 32>(values, low, high, lane);
            __syncwarp();
        }
        own.add(values, s, lane);
        release(1);
    }
    if (nth > 0) wait_barrier(shared_at(&shared.joined), (nth - 1) % 2);  // sums of the piece before have been read
    own.leave(joined, warp, lane);
}

extern "C" __global__ void __launch_bounds__(32 * (WARPS + 3), 1)
    attention_few(const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, Batch batch, Pointers at,
                  Numbers with) {
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(16) Shared shared;
    Joined& joined = *(Joined*)(memory + 2 * WARPS * SLOTS * SLOT_BYTES);
    const u32 rings = shared_at(memory);
    const int warp = warp_index(), lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            barrier_init(shared_at(shared.full + i), 1);
            barrier_init(shared_at(shared.empty + i), WARPS);
            barrier_init(shared_at(shared.queried + i), 1);
        }
        barrier_init(shared_at(&shared.joined), WARPS);
        for (int i = 0; i < 2 * WARPS * SLOTS; i++) {
            barrier_init(shared_at(&shared.copied[0][0][0] + i), 1);
            barrier_init(shared_at(&shared.used[0][0][0] + i), 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (warp == WARPS) copy_pieces(k, v, batch, at, with, shared, rings, lane);
    if (warp == WARPS + 1) find_pieces(batch, with.window, shared, at.counters, lane);
    if (warp == WARPS + 2) clear_and_check(batch, at, with, lane);
    if (warp >= WARPS) return;

    Ring<SLOTS> ring;
    Ring<2> next;
    for (int nth = 0;; nth++, next.next()) {
        wait_barrier(shared_at(shared.full + next.stage), next.parity);
        const Piece piece = shared.pieces[next.stage];
        if (piece.num_pieces == 0) break;
        const int rows = min(piece.count * GROUP - piece.tile * ROWS, ROWS);
        wait_barrier(shared_at(shared.queried + next.stage), next.parity);
        const u8* const queries = shared.queries[next.stage];
        if (rows <= 8)
            walk<1>(piece, with, queries, at.fault, shared, rings, ring, joined, nth, warp, lane);
        else
            walk<2>(piece, with, queries, at.fault, shared, rings, ring, joined, nth, warp, lane);
        sync_some(1, 32 * WARPS);
        if (lane == 0) arrive(shared_at(shared.empty + next.stage));
        if (nth == 0) wait_for_previous();  // from here on memory is written, which the launch before may use
        join_piece(at, shared, joined, piece, threadIdx.x);
    }
}
