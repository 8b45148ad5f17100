// y = (x @ w^T) * (row scale * scale) + bias with the matrix instructions of warpgroups: the fast tier's product for more
// tokens.
//
// A cluster of PARTS blocks owns 4 * RG tiles of 16 rows, a block its part of K, which it walks in stages of SB blocks of 32.
// COPIERS warps copy. The others make fragments of a tile each, KG groups of them by turns of BATCH blocks; four of them are
// a warpgroup, which multiplies the fragments by all tokens while they make the next. Sums meet in shared memory.
// Gated: half of the tiles are of the gate, and int8 blocks are stored (gating.cuh).
// Compiled with FORMAT, NT (tiles of 8 tokens), RG, KG, PARTS, SB, STAGES, GATED (0; 1: where no block
// owns tiles twice; 2: with memory of its own; both with KG and PARTS of 1), REGISTERS. K is a multiple of 32 * SB * PARTS;
// with PARTS > 1 no block owns tiles twice.
#include "copying.cuh"
#include "gating.cuh"
#include "tokens.cuh"

static constexpr int F = FORMAT;
static constexpr int TILES = 4 * RG, WARPS = TILES * KG;
// Blocks whose products a warpgroup waits for together: more where two warpgroups have narrow codes.
// A stage has two batches of a group at least: fragments are read until the next batch's are made.
static constexpr int MOST_BATCH = RG == 2 && F != q8_0 && F != q6_k ? 4 : 2;
static constexpr int BATCH = SB / KG / 2 < MOST_BATCH ? SB / KG / 2 : MOST_BATCH;
static_assert(SB / BATCH / KG >= 2);
using Stage = TileStage<F, SB>;
static constexpr int A_BYTES = (TILES * Stage::bytes + 127) / 128 * 128;
static constexpr int B_BLOCK = NT * 512;  // bytes of a block of 32 for all tokens
static constexpr int STAGE_BYTES = A_BYTES + SB * B_BLOCK;
static_assert(NT * 8 <= WARPS * 32);  // a thread takes a token's factor
static_assert(GATED == 0 || KG * PARTS == 1);
static constexpr int SHARES = KG * PARTS;             // of the sums of a tile
static constexpr int SHARE = NT / SHARES;             // tiles of tokens whose results a warp stores
static_assert(NT % SHARES == 0);

// Where all warps that add, of a block or a cluster, wait for each other.
__device__ __forceinline__ void meet() {
    if constexpr (PARTS > 1)
        sync_cluster();
    else
        sync_some(1, WARPS * 32);
}

extern "C" __global__ void __maxnreg__(REGISTERS)
    product_wide(const u8* data, Offsets at, const u8* x, const float* row_scale, const float* bias, float* y,
                 float scale, int num_tokens, int num_rows, int nb, Gated gated) {
    extern __shared__ __align__(128) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * STAGES];
    __shared__ float factors[NT * 8];  // of tokens
    const u32 base = shared_at(memory), full = shared_at(barriers), empty = full + 8 * STAGES;
    const u32 warp = warp_index(), lane = threadIdx.x % 32;
    constexpr int HALVES = GATED ? 2 : 1;
    const int tiles = (num_rows + 15) / 16, units = (tiles / HALVES + TILES / HALVES - 1) / (TILES / HALVES);
    const int part = blockIdx.x % PARTS, first = blockIdx.x / PARTS, stride = gridDim.x / PARTS;
    const int blocks = nb / PARTS, rounds = (units - first + stride - 1) / stride;

    begin_stages(full, empty, STAGES, WARPS);
    if (warp >= WARPS) {
        auto copy_activations = [&](u32 place, u32 barrier, int first, int blocks) {
            copy_bulk(place + A_BYTES, x + (u64)first * B_BLOCK, blocks * B_BLOCK, barrier);
        };
        copy_stages<Stage, TILES, SB, STAGES, STAGE_BYTES, B_BLOCK>(
            base, full, empty, warp - WARPS, data, at, tiles, {first, stride, rounds, nb, part * blocks, blocks, HALVES},
            copy_activations);
    } else {
        wait_for_previous();
        const int tile = warp % TILES, kg = warp / TILES, g = lane / 4, t = lane % 4;
        u8* meeting = memory + STAGES * STAGE_BYTES + tile * NT * 512 + lane * 16;  // [KG][TILES][NT][32] of four sums
        const Powers powers = powers_of<F>(data + at.power);
        if ((int)threadIdx.x < num_tokens)  // now: at the end their loads would be waited for
            factors[threadIdx.x] = row_scale[threadIdx.x] * (powers.restore * scale);
        sync_some(1, WARPS * 32);
        Ring<STAGES> ring;
        u32 before = 0;  // the barrier of the stage before
        for (int round = 0; round < rounds; round++) {
            float sums[4 * NT] = {};
            for (int step = 0; step < blocks / SB; step++, ring.next()) {
                wait_barrier(full + 8 * ring.stage, ring.parity);
                const u32 weights = base + ring.stage * STAGE_BYTES + tile * Stage::bytes;
                const u64 tokens = matrix_at(base + ring.stage * STAGE_BYTES + A_BYTES);
#pragma unroll
                for (int i = 0; i < SB / BATCH / KG; i++) {
                    const int b = (i * KG + kg) * BATCH;
                    u32 low[BATCH][4], high[BATCH][4];
                    halves<F, SB, BATCH>(weights, b, lane, powers, low, high);
                    u64 x_block = tokens + (u32)(b * (B_BLOCK / 16));
                    begin_products();
#pragma unroll
                    for (int j = 0; j < BATCH; j++, x_block += B_BLOCK / 16) {
                        multiply(sums, low[j], x_block);
                        multiply(sums, high[j], x_block + 256 / 16);
                    }
                    end_products();
                    wait_products<1>();  // those before these, whose fragments the next may replace
                    if (i == 0 && step > 0 && lane == 0) arrive(before);
                }
                before = empty + 8 * ring.stage;
            }
            wait_products<0>();
            if (lane == 0) arrive(before);
            keep(sums);
            if constexpr (GATED) {
                using End = Gating<F, TILES, NT>;
                static_assert(End::bytes <= STAGES * STAGE_BYTES);
                if constexpr (GATED == 1) sync_some(1, WARPS * 32);  // all have read what lies there
                End::finish(sums, factors, memory + (GATED == 1 ? 0 : STAGES * STAGE_BYTES), tile, lane,
                            first + round * stride, tiles / 2, num_tokens, gated);
                continue;
            }

            const int share = (part * KG + kg) * SHARE;
            if constexpr (SHARES > 1) {
#pragma unroll
                for (int j = 0; j < NT; j++)
                    *(float4*)(meeting + (kg * TILES * NT + j) * 512) =
                        make_float4(sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]);
                meet();
#pragma unroll
                for (int j = 0; j < SHARE; j++) {
                    float4 total = make_float4(0, 0, 0, 0);
#pragma unroll
                    for (int s = 0; s < SHARES; s++) {
                        const u8* place = meeting + (s % KG * TILES * NT + share + j) * 512;
                        float4 other = PARTS > 1 ? read_cluster(shared_at(place), s / KG) : read_shared<float4>(place);
                        total.x += other.x, total.y += other.y, total.z += other.z, total.w += other.w;
                    }
                    sums[4 * j] = total.x, sums[4 * j + 1] = total.y, sums[4 * j + 2] = total.z, sums[4 * j + 3] = total.w;
                }
                meet();  // what others read stays until then
            }
            const int first_row = ((first + round * stride) * TILES + tile) * 16;
#pragma unroll
            for (int j = 0; j < SHARE; j++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const int token = (share + j) * 8 + 2 * t + c;
                    if (token >= num_tokens) continue;
                    const float factor = factors[token];
#pragma unroll
                    for (int r = 0; r < 2; r++) {
                        const int row = first_row + row_of(F, g, r);
                        if (row < num_rows)
                            y[(u64)token * num_rows + row] =
                                fmaf(sums[4 * j + 2 * r + c], factor, bias ? bias[row] : 0.0f);
                    }
                }
        }
    }
}
