// y = (codes * scales) @ w^T + bias with the bits of docs/numerics.md, section 4: int8 tensor cores for the sums of 32,
// then one multiplication and one addition a block and result, in chains over chunks of 8 blocks.
//
// A block owns RT tiles of 16 rows at a time and all of K for NT tiles of 8 tokens. COPIERS warps copy stages of G
// chunks; the others own a tile, a chunk of each stage and a part of the tokens (TG parts). Sums of the G chunks meet in
// shared memory and are added in order. Compiled with FORMAT, RT, NT, G, TG, STAGES, REGISTERS, TAIL (whether K
// ends inside a chunk: without, a chunk is one run of instructions), FUSED (the fast tier's terms).
#include "copying.cuh"
#include "terms.cuh"

static constexpr int F = FORMAT;
static constexpr int SB = 8 * G;  // blocks of a stage
static constexpr int NTW = NT / TG;
static constexpr int WARPS = RT * G * TG;
using Stage = TileStage<F, SB>;
static constexpr bool SUMS = has_offset(F) || has_sub_offset(F);  // sums of the activations' codes are needed
static constexpr int A_BYTES = (RT * Stage::bytes + 127) / 128 * 128;
static constexpr int CODES_BLOCK = NT * 256, SCALES_BLOCK = NT * 32;
static constexpr int SCALES_AT = A_BYTES + SB * CODES_BLOCK, SUMS_AT = SCALES_AT + SB * SCALES_BLOCK;
static constexpr int STAGE_BYTES = SUMS_AT + (SUMS ? SB * SCALES_BLOCK : 0);
static constexpr int SHARE = (4 * NTW + G - 1) / G;  // results of a thread, where chunks meet

__device__ __forceinline__ void clear(float (&sums)[NTW][4]) {
#pragma unroll
    for (int i = 0; i < 4 * NTW; i++) sums[i / 4][i % 4] = 0.0f;
}

extern "C" __global__ void __maxnreg__(REGISTERS)
    product_exact(const u8* data, Offsets at, const u8* codes, const u8* scales, const u8* code_sums,
                  const float* bias, float* y, float scale, int num_tokens, int num_rows, int nb) {
    extern __shared__ __align__(128) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * STAGES];
    const u32 base = shared_at(memory), full = shared_at(barriers), empty = full + 8 * STAGES;
    const u32 warp = warp_index(), lane = threadIdx.x % 32;
    const int tiles = (num_rows + 15) / 16;
    const int row_blocks = (tiles + RT - 1) / RT;
    const int rounds = (row_blocks - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
    const int steps = (nb + SB - 1) / SB;
    const u64 before = (u64)blockIdx.y * nb;  // blocks of the tokens before these
    codes += before * CODES_BLOCK, scales += before * SCALES_BLOCK, code_sums += before * SCALES_BLOCK;

    begin_stages(full, empty, STAGES, WARPS);
    if (warp >= WARPS) {
        auto copy_activations = [&](u32 place, u32 barrier, int first, int blocks) {
            auto part = [&](int at, const u8* from, int per_block) {
                copy_bulk(place + at, from + (u64)first * per_block, blocks * per_block, barrier);
            };
            part(A_BYTES, codes, CODES_BLOCK);
            part(SCALES_AT, scales, SCALES_BLOCK);
            if (SUMS) part(SUMS_AT, code_sums, SCALES_BLOCK);
        };
        copy_stages<Stage, RT, SB, STAGES, STAGE_BYTES, CODES_BLOCK + SCALES_BLOCK * (1 + SUMS)>(
            base, full, empty, warp - WARPS, data, at, tiles, {(int)blockIdx.x, (int)gridDim.x, rounds, nb, 0, nb},
            copy_activations);
    } else {
        wait_for_previous();
        const int rt = warp % RT, group = warp / RT % G, tg = warp / RT / G, t = lane % 4;
        // where the sums of a tile's chunks meet: [2][G][4 * NTW * 32] floats
        u8* meeting = memory + STAGES * STAGE_BYTES + (tg * RT + rt) * (2 * G * NTW * 512);
        const u32 thread = group * 32 + lane;
        const u32 signs = 0x80808080 ^ (u32)(nb >> 31);  // what a compiler cannot know
        Ring<STAGES> ring;
        u32 meetings = 0;
        for (int round = 0; round < rounds; round++) {
            const int tile = (blockIdx.x + round * gridDim.x) * RT + rt;
            float total[SHARE] = {}, sums[NTW][4];
            for (int step = 0; step < steps; step++, ring.next()) {
                wait_barrier(full + 8 * ring.stage, ring.parity);
                const u8 *stage = memory + ring.stage * STAGE_BYTES, *tile_stage = stage + rt * Stage::bytes;
                if (!FUSED || step == 0) clear(sums);
                if (tile < tiles && (TAIL || G == 1 || step * SB + group * 8 < nb)) {
                    Shared<F> shared = shared_scales<F, SB>(tile_stage, group, lane, scale, signs);
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        const int b = group * 8 + i;
                        if (TAIL && step * SB + b >= nb) break;
                        const Operand<F> a = operand<F, SB>(tile_stage, b, lane, shared);
#pragma unroll
                        for (int j = 0; j < NTW; j++) {
                            const int n = tg * NTW + j;
                            uint2 x = read_shared<uint2>(stage + A_BYTES + b * CODES_BLOCK + n * 256 + lane * 8);
                            uint2 sa = read_shared<uint2>(stage + SCALES_AT + b * SCALES_BLOCK + n * 32 + t * 8);
                            uint2 asum = make_uint2(0, 0);
                            if (SUMS) asum = read_shared<uint2>(stage + SUMS_AT + b * SCALES_BLOCK + n * 32 + t * 8);
                            add_terms<F, FUSED>(sums[j], a, x, sa, asum);
                        }
                    }
                }
                __syncwarp();
                if (lane == 0) arrive(empty + 8 * ring.stage);
                if (FUSED && step < steps - 1) continue;  // no order is kept: groups meet once
                if constexpr (G == 1) {
#pragma unroll
                    for (int i = 0; i < 4 * NTW; i++) total[i] = __fadd_rn(total[i], sums[i / 4][i % 4]);
                } else {
                    u8* place = meeting + (meetings++ & 1) * (G * NTW * 512);
#pragma unroll
                    for (int i = 0; i < 4 * NTW; i++)
                        *(float*)(place + ((group * NTW * 4 + i) * 32 + lane) * 4) = sums[i / 4][i % 4];
                    sync_some(1 + tg * RT + rt, 32 * G);
#pragma unroll
                    for (int i = 0; i < SHARE; i++) {
                        const u32 result = thread + i * (32 * G);
                        if (4 * NTW % G != 0 && result >= 128 * NTW) break;
#pragma unroll
                        for (int c = 0; c < G; c++)
                            total[i] = __fadd_rn(
                                total[i],
                                read_shared<float>(place + (c * (NTW * 128) + result) * 4));
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < SHARE; i++) {
                const u32 result = G == 1 ? i * 32 + lane : thread + i * (32 * G);
                if (result >= 128 * NTW) break;
                const int which = result / 32, from = result % 32;  // sums[which / 4][which % 4] of lane `from`
                const int row = tile * 16 + from / 4 + which % 4 / 2 * 8;
                const int token = (blockIdx.y * NT + tg * NTW + which / 4) * 8 + 2 * (from % 4) + which % 2;
                if (row < num_rows && token < num_tokens) {
                    float value = settled(__fmul_rn(total[i], 1.0f / (1 << shift_of(F))));
                    if (bias) value = settled(__fadd_rn(value, bias[row]));
                    y[(u64)token * num_rows + row] = value;
                }
            }
        }
    }
}
