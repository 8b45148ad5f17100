// Sums of warps, then of pieces, joined into rows of results.
#pragma once
#include "few.cuh"

// What a walk over some positions leaves of a row: the maximum of its scores, in powers of 2, and the sum of its weights.
struct Walked {
    float most, total;
};
__device__ __forceinline__ float shift_of(float most) { return most == NEG_INF ? 0.0f : most; }

// The sum of `count` parts of a row's two neighbouring elements: walked(i) and sums(i) are those of part i.
template <class Which, class Sums>
__device__ __forceinline__ float2 join(int count, Which walked, Sums sums, Walked& all) {
    all = {NEG_INF, 0.0f};
#pragma unroll 8
    for (int i = 0; i < count; i++) all.most = fmaxf(all.most, walked(i).most);
    const float shift = shift_of(all.most);
    float2 x = make_float2(0.0f, 0.0f);
#pragma unroll 8
    for (int i = 0; i < count; i++) {
        const Walked part = walked(i);
        const float2 y = sums(i);
        const float factor = exp2_near(part.most - shift);
        all.total = fmaf(part.total, factor, all.total);
        x.x = fmaf(y.x, factor, x.x), x.y = fmaf(y.y, factor, x.y);
    }
    return x;
}

// Elements `element` and the next of a row, as they are stored.
__device__ __forceinline__ void finish(const Pointers& at, const Piece& piece, int row, int element, float2 x, Walked all) {
    const int token = piece.first + row / GROUP, query_head = piece.head * GROUP + row % GROUP;
    float factor = 1.0f;
    if (HAS_SINKS) {
        const float sink = at.sinks[query_head] * LOG2E, most = fmaxf(all.most, sink), shift = shift_of(most);
        factor = exp2_near(all.most - shift);
        all = {most, fmaf(all.total, factor, exp2_near(sink - shift))};
    }
    factor = all.total > 0.0f ? factor / all.total : 0.0f;
    const u64 start = (u64)token * HEADS + query_head;
    store_pair<BF16, WIDE_Q>(at.out, start * D + element, x.x * factor, x.y * factor);
    if (HAS_LSE && element == 0) at.lse[start] = all.total > 0.0f ? all.most + __log2f(all.total) : NEG_INF;
}

// What the warps of a block have left in shared memory becomes results, or what the last piece of an item to come makes them of.
__device__ __forceinline__ void join_piece(const Pointers& at, Shared& shared, const Joined& warps, const Piece& piece,
                                           int thread) {
    const int first_row = piece.tile * ROWS, rows = min(piece.count * GROUP - first_row, ROWS);
    for (int i = thread; i < rows * (D / 2); i += 32 * WARPS) {
        const int row = i / (D / 2), element = i % (D / 2) * 2;
        Walked all;
        const float2 x = join(
            WARPS, [&](int w) { return Walked{warps.most[w][row], warps.total[w][row]}; },
            [&](int w) { return *(const float2*)&warps.sums[w][row][element]; }, all);
        if (piece.num_pieces == 1) {
            finish(at, piece, first_row + row, element, x, all);
        } else {
            const u64 slot = (u64)(piece.slot + piece.nth) * ROWS + row;
            *(float2*)(at.part_sums + slot * D + element) = x;
            if (element == 0) *(float2*)(at.part_walked + slot * 2) = make_float2(all.most, all.total);
        }
    }
    __syncwarp();
    if (thread % 32 == 0) arrive(shared_at(&shared.joined));
    if (piece.num_pieces == 1) return;

    __threadfence();
    sync_some(1, 32 * WARPS);
    if (thread == 0) {
        int* const arrived = at.counters + 2 + piece.slot;
        shared.is_last = atomicAdd(arrived, 1) == piece.num_pieces - 1;
        if (shared.is_last) *arrived = 0;
        __threadfence();
    }
    sync_some(1, 32 * WARPS);
    if (!shared.is_last) return;
    for (int i = thread; i < rows * (D / 2); i += 32 * WARPS) {
        const int row = i / (D / 2), element = i % (D / 2) * 2;
        auto slot = [&](int nth) { return (u64)(piece.slot + nth) * ROWS + row; };
        Walked all;
        const float2 x = join(
            piece.num_pieces,
            [&](int nth) {
                const float2 y = __ldcg((const float2*)(at.part_walked + slot(nth) * 2));
                return Walked{y.x, y.y};
            },
            [&](int nth) { return __ldcg((const float2*)(at.part_sums + slot(nth) * D + element)); }, all);
        finish(at, piece, first_row + row, element, x, all);
    }
}
