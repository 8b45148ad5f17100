// The end of gemm_silu_q8 in wide.cu: sums of gate and up projections to int8 blocks of silu(gate) * up, which never were
// float32 in memory.
//
// WIDTH: tiles of 8 tokens. Tiles [0, HALF) of a block are rows of the gate, the others the same rows of the up projection. A tile's warp works on half
// of the tokens: it gets the sums of its partner for these and gives its own for the others.
#pragma once
#include "halves.cuh"
#include "int8_blocks.cuh"

struct Gated {  // where blocks go, and what quantize_q8 refuses
    signed char* codes;
    float* scales;
    int* fault;
    int fault_number;
    float smallest, largest;  // magnitudes of a block
};

template <int F, int TILES, int WIDTH>
struct Gating {
    static constexpr int HALF = TILES / 2, MINE = WIDTH / 2, TOKENS = WIDTH * 8, ROWS = HALF * 16;
    static_assert(HALF % 2 == 0 && WIDTH % 2 == 0);
    // In shared memory: sums of partners [TILES][MINE][32] of four, magnitudes [TILES][MINE * 8], codes [TOKENS][ROWS], scales
    // [TOKENS][HALF / 2].
    static constexpr int magnitudes = TILES * MINE * 512, codes = magnitudes + TILES * MINE * 32;
    static constexpr int scales = codes + TOKENS * ROWS, bytes = scales + TOKENS * HALF * 2;

    __device__ __forceinline__ static float silu_times(float gate, float up) {
        return settled(__fdividef(gate, 1.0f + __expf(-gate)) * up);
    }

    // All warps of the tiles come here. unit: which HALF tiles of `half_tiles` these are; memory: 16-byte aligned.
    __device__ static void finish(const float (&sums)[4 * WIDTH], const float* factors, u8* memory, u32 tile, u32 lane,
                                  int unit, int half_tiles, int num_tokens, const Gated& to) {
        const bool is_up = tile >= HALF;
        const u32 here = tile % HALF, g = lane / 4, t = lane % 4;
        const u32 partner = is_up ? here : here + HALF;
        auto place = [&](u32 of, int j) { return (float4*)(memory + ((of * MINE + j) * 32 + lane) * 16); };
#pragma unroll
        for (int j = 0; j < MINE; j++) {
            float4 given;
            given.x = is_up ? sums[4 * j] : sums[4 * (MINE + j)];
            given.y = is_up ? sums[4 * j + 1] : sums[4 * (MINE + j) + 1];
            given.z = is_up ? sums[4 * j + 2] : sums[4 * (MINE + j) + 2];
            given.w = is_up ? sums[4 * j + 3] : sums[4 * (MINE + j) + 3];
            *place(tile, j) = given;
        }
        sync_some(1, TILES * 32);
        const int first = is_up ? MINE * 8 : 0;  // token
        u32* largest = (u32*)(memory + magnitudes);
        float x[MINE][4];
        u32 of_token[MINE][2];
#pragma unroll
        for (int j = 0; j < MINE; j++) {
            const float4 got = *place(partner, j);
            const float other[4] = {got.x, got.y, got.z, got.w};
            of_token[j][0] = of_token[j][1] = 0;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float own = is_up ? sums[4 * (MINE + j) + i] : sums[4 * j + i];
                const float factor = factors[first + j * 8 + 2 * t + i % 2];
                x[j][i] = silu_times((is_up ? other[i] : own) * factor, (is_up ? own : other[i]) * factor);
                of_token[j][i % 2] = max(of_token[j][i % 2], magnitude_of(x[j][i]));
            }
#pragma unroll
            for (int c = 0; c < 2; c++) {
#pragma unroll
                for (int apart = 4; apart < 32; apart *= 2)
                    of_token[j][c] = max(of_token[j][c], __shfl_xor_sync(0xffffffff, of_token[j][c], apart));
                if (g == 0) largest[(tile * MINE + j) * 8 + 2 * t + c] = of_token[j][c];
            }
        }
        sync_some(1, TILES * 32);
        const bool is_row = unit * HALF + (int)here < half_tiles;
#pragma unroll
        for (int j = 0; j < MINE; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const u32 token = first + j * 8 + 2 * t + c;
                const float amax = __uint_as_float(max(of_token[j][c], largest[((tile ^ 1) * MINE + j) * 8 + 2 * t + c]));
                if (is_row && token < num_tokens && !(amax <= to.largest)) *to.fault = to.fault_number;
                const float by = block_factor(amax, to.smallest);
                if (g == 0 && here % 2 == 0)
                    *(float*)(memory + scales + (token * (HALF / 2) + here / 2) * 4) = block_scale(amax, to.smallest);
#pragma unroll
                for (int r = 0; r < 2; r++)
                    memory[codes + token * ROWS + here * 16 + row_of(F, g, r)] =
                        (u8)code_of(x[j][2 * r + c], by);
            }
        sync_some(1, TILES * 32);
        for (int i = threadIdx.x; i < TOKENS * HALF; i += TILES * 32) {
            const int token = i / HALF, at = i % HALF, of = unit * HALF + at;
            if (token >= num_tokens || of >= half_tiles) continue;
            *(uint4*)(to.codes + ((u64)token * half_tiles + of) * 16) =
                *(const uint4*)(memory + codes + token * ROWS + at * 16);
            if (at % 2 == 0)
                to.scales[(u64)token * (half_tiles / 2) + of / 2] =
                    *(const float*)(memory + scales + (token * (HALF / 2) + at / 2) * 4);
        }
    }
};
