// y = (x @ w^T) * (row scale * scale) + bias with float16 tensor cores: the fast tier's product for few tokens, and for up
// to 128 where wide.cu does not fit.
//
// A block owns MT tiles of 16 rows at a time and walks K in stages of SB blocks of 32. COPIERS warps copy; the others take
// blocks of a stage in turn (KG groups of them) for their part of the tokens (TG groups), and add their sums at the end.
// Compiled with FORMAT, MT, NT (tiles of 8 tokens), KG, TG, SB, STAGES, REGISTERS.
#include "copying.cuh"
#include "halves.cuh"

static constexpr int F = FORMAT;
static constexpr int NTW = NT / TG;  // token tiles of a warp
static constexpr int WARPS = KG * TG;
using Stage = TileStage<F, SB>;
static constexpr int A_BYTES = (MT * Stage::bytes + 127) / 128 * 128;
static constexpr int B_BLOCK = NT * 512;  // bytes of a block of 32 for all tokens
static constexpr int STAGE_BYTES = A_BYTES + SB * B_BLOCK;
static_assert(NT * 8 <= WARPS * 32);  // a thread takes a token's factor

__device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void __maxnreg__(REGISTERS)
    product_fast(const u8* data, Offsets at, const u8* x, const float* row_scale, const float* bias, float* y,
                 float scale, int num_tokens, int num_rows, int nb) {
    extern __shared__ __align__(128) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * STAGES];
    __shared__ float factors[NT * 8];  // of tokens
    const u32 base = shared_at(memory), full = shared_at(barriers), empty = full + 8 * STAGES;
    const u32 warp = warp_index(), lane = threadIdx.x % 32;
    const int tiles = (num_rows + 15) / 16;
    const int row_blocks = (tiles + MT - 1) / MT;
    const int rounds = (row_blocks - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
    const int steps = (nb + SB - 1) / SB;

    begin_stages(full, empty, STAGES, WARPS);
    if (warp >= WARPS) {
        auto copy_activations = [&](u32 place, u32 barrier, int first, int blocks) {
            copy_bulk(place + A_BYTES, x + (u64)first * B_BLOCK, blocks * B_BLOCK, barrier);
        };
        copy_stages<Stage, MT, SB, STAGES, STAGE_BYTES, B_BLOCK>(
            base, full, empty, warp - WARPS, data, at, tiles, {(int)blockIdx.x, (int)gridDim.x, rounds, nb, 0, nb},
            copy_activations);
    } else {
        wait_for_previous();
        const int kg = warp % KG, tg = warp / KG, g = lane / 4, t = lane % 4;
        u8* join = memory + STAGES * STAGE_BYTES;
        const Powers powers = powers_of<F>(data + at.power);
        if ((int)threadIdx.x < num_tokens)  // now: at the end their loads would be waited for
            factors[threadIdx.x] = row_scale[threadIdx.x] * (powers.restore * scale);
        sync_some(1, WARPS * 32);
        Ring<STAGES> ring;
        for (int round = 0; round < rounds; round++) {
            const int row_block = blockIdx.x + round * gridDim.x;
            float sums[MT][NTW][4] = {};
            for (int step = 0; step < steps; step++, ring.next()) {
                wait_barrier(full + 8 * ring.stage, ring.parity);
                const u8* stage = memory + ring.stage * STAGE_BYTES;
                const int blocks = min(SB, nb - step * SB);
#pragma unroll
                for (int i = 0; i < SB / KG; i++) {
                    const int b = kg + i * KG;
                    if (b >= blocks) break;
                    uint4 xs[NTW];
#pragma unroll
                    for (int j = 0; j < NTW; j++)
                        xs[j] = read_shared<uint4>(stage + A_BYTES + b * B_BLOCK + (tg * NTW + j) * 512 + lane * 16);
#pragma unroll
                    for (int i = 0; i < MT; i++) {
                        u32 low[1][4], high[1][4];
                        halves<F, SB, 1>(base + ring.stage * STAGE_BYTES + i * Stage::bytes, b, lane, powers, low, high);
#pragma unroll
                        for (int j = 0; j < NTW; j++) mma(sums[i][j], low[0], xs[j].x, xs[j].y);
#pragma unroll
                        for (int j = 0; j < NTW; j++) mma(sums[i][j], high[0], xs[j].z, xs[j].w);
                    }
                }
                __syncwarp();
                if (lane == 0) arrive(empty + 8 * ring.stage);
            }
#pragma unroll
            for (int left = KG / 2; left > 0; left /= 2) {
                u8* place = join + (((kg % left) * TG + tg) * MT * NTW * 32 + lane) * 16;
                if (kg >= left && kg < 2 * left) {
#pragma unroll
                    for (int i = 0; i < MT * NTW; i++) {
                        float(&s)[4] = sums[i / NTW][i % NTW];
                        *(float4*)(place + i * 512) = make_float4(s[0], s[1], s[2], s[3]);
                    }
                }
                sync_some(1, WARPS * 32);
                if (kg < left) {
#pragma unroll
                    for (int i = 0; i < MT * NTW; i++) {
                        float4 other = read_shared<float4>(place + i * 512);
                        float(&s)[4] = sums[i / NTW][i % NTW];
                        s[0] += other.x, s[1] += other.y, s[2] += other.z, s[3] += other.w;
                    }
                }
                sync_some(1, WARPS * 32);
            }
            if (kg == 0) {
#pragma unroll
                for (int j = 0; j < NTW; j++)
#pragma unroll
                    for (int c = 0; c < 2; c++) {
                        const int token = (tg * NTW + j) * 8 + 2 * t + c;
                        if (token >= num_tokens) continue;
                        const float factor = factors[token];
#pragma unroll
                        for (int i = 0; i < MT * 2; i++) {
                            const int row = (row_block * MT + i / 2) * 16 + row_of(F, g, i % 2);
                            if (row < num_rows)
                                y[(u64)token * num_rows + row] =
                                    fmaf(sums[i / 2][j][i % 2 * 2 + c], factor, bias ? bias[row] : 0.0f);
                        }
                    }
            }
        }
    }
}
