// What the warps do that copy: all stages of a block's walk over its tiles and K, as fast as the others free them.
#pragma once
#include "formats.cuh"

static constexpr int COPIERS = 4;  // such warps; a lane of each asks for its share of the tiles

// Barriers of the stages: `full` is completed by bytes, `empty` by the warps that have read them.
__device__ __forceinline__ void begin_stages(u32 full, u32 empty, int stages, int readers) {
    if (threadIdx.x == 0) {
        for (int s = 0; s < stages; s++) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, readers);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
}

// Where a block walks: `rounds` times Tiles tiles, the first of them unit * Tiles, the next ones `stride` units on; of each
// tile, which has nb blocks of K, the blocks [first, first + blocks). With two halves only half as many tiles come from
// there, and as many from as far behind the first tile of the second half.
struct Walk {
    int unit, stride, rounds, nb, first, blocks, halves = 1;
};

// Tiles tiles of a stage of Blocks blocks, then activations, PerBlock bytes of each: copy_activations(place, barrier, first
// block, blocks) asks for these.
template <class Stage, int Tiles, int Blocks, int Stages, int StageBytes, int PerBlock, class Activations>
__device__ __forceinline__ void copy_stages(u32 base, u32 full, u32 empty, int copier, const u8* data,
                                            const Offsets& at, int tiles, const Walk& walk,
                                            Activations copy_activations) {
    if (!elected()) return;
    const int steps = (walk.blocks + Blocks - 1) / Blocks;
    const int total = walk.rounds * steps, ahead = min(total, Stages);
    auto blocks_of = [&](int step) { return min(Blocks, walk.blocks - step * Blocks); };
    const int at_once = Tiles / walk.halves, apart = tiles / walk.halves;
    int step = 0, tile_first = walk.unit * at_once;
    auto next = [&] {
        if (++step == steps) step = 0, tile_first += walk.stride * at_once;
    };
    auto copy_weights = [&](u32 s) {
        const int here = max(0, min(at_once, apart - tile_first)), blocks = blocks_of(step);
        if (copier == 0) expect_bytes(full + 8 * s, walk.halves * here * Stage::num_bytes(blocks) + blocks * PerBlock);
        for (int half = 0; half < walk.halves; half++)
            for (int i = copier; i < here; i += COPIERS)
                Stage::copy(base + s * StageBytes + (half * at_once + i) * Stage::bytes, data, at,
                            half * apart + tile_first + i, walk.nb, walk.first + step * Blocks, blocks, full + 8 * s);
    };
    auto copy_rest = [&](u32 s, int step) {
        if (copier == COPIERS - 1)
            copy_activations(base + s * StageBytes, full + 8 * s, walk.first + step * Blocks, blocks_of(step));
    };
    // Weights are constants: the first stages ask for them before the launch before has ended.
    for (int i = 0; i < ahead; i++, next()) copy_weights(i);
    wait_for_previous();
    for (int i = 0; i < ahead; i++) copy_rest(i, i % steps);
    Ring<Stages> ring;
    for (int i = Stages; i < total; i++, ring.next(), next()) {
        wait_barrier(empty + 8 * ring.stage, ring.parity);
        copy_weights(ring.stage);
        copy_rest(ring.stage, step);
    }
}
