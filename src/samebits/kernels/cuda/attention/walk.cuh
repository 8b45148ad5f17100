// A warp's walk over its runs of a piece: scores, weights and their sums with values, and what it leaves of them.
#pragma once
#include "few.cuh"

static constexpr int STEPS = D / 16;

// The runs of a piece, for NT tiles of 8 rows.
template <int NT>
struct Walk {
    u32 q[STEPS][NT][2];
    float sums[STEPS][NT][4] = {}, most[NT][2], total[NT][2] = {};  // rows 2t and 2t + 1 of a tile

    __device__ __forceinline__ bool load_queries(const u8* queries, int rows, int lane) {
        bool is_finite = true;
#pragma unroll
        for (int i = 0; i < STEPS * NT * 2; i++) {
            const int row = i / 2 % NT * 8 + lane / 4, element = i / (2 * NT) * 16 + i % 2 * 8 + lane % 4 * 2;
            u32& pair = q[i / (2 * NT)][i / 2 % NT][i % 2];
            pair = row < rows ? narrow_pair<BF16>(load_pair<WIDE_Q>(queries + row * QUERY_BYTES, element)) : 0;
            is_finite &= both_finite<BF16>(pair);
        }
#pragma unroll
        for (int n = 0; n < NT; n++) most[n][0] = most[n][1] = NEG_INF;
        return is_finite;
    }

    // Scores of a run, to weights.
    __device__ __forceinline__ void score(u32 keys, float (&s)[NT][4], int lane) {
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            u32 a[4];
            load_keys(a, keys, i, lane);
#pragma unroll
            for (int n = 0; n < NT; n++) multiply_warp<BF16>(s[n], a, q[i][n][0], q[i][n][1]);
        }
    }
    __device__ __forceinline__ void mask(float (&s)[NT][4], const Piece& piece, int run, int window, int lane) {
#pragma unroll
        for (int i = 0; i < 4 * NT; i++) {
            const int position = run * RUN + lane / 4 + i % 4 / 2 * 8;
            const int row = piece.tile * ROWS + i / 4 * 8 + lane % 4 * 2 + i % 2;
            const int own = piece.length - piece.count + row / GROUP;
            bool is_seen = position <= (CAUSAL ? own : piece.length - 1);
            if (WINDOW) is_seen &= position >= own - window;
            s[i / 4][i % 4] = is_seen ? s[i / 4][i % 4] : NEG_INF;
        }
    }
    __device__ __forceinline__ void weigh(float (&s)[NT][4], float scale) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float alpha[2];
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float here = fmaxf(s[n][c], s[n][c + 2]);
#pragma unroll
                for (int i = 4; i < 32; i *= 2) here = fmaxf(here, __shfl_xor_sync(~0u, here, i));
                const float now = fmaxf(most[n][c], here * scale), shift = now == NEG_INF ? 0.0f : now;
                alpha[c] = exp2_near(most[n][c] - shift), most[n][c] = now;
                s[n][c] = exp2_near(fmaf(s[n][c], scale, -shift));
                s[n][c + 2] = exp2_near(fmaf(s[n][c + 2], scale, -shift));
                total[n][c] = fmaf(total[n][c], alpha[c], s[n][c] + s[n][c + 2]);
            }
            if (__any_sync(~0u, alpha[0] < 1.0f || alpha[1] < 1.0f)) {
#pragma unroll
                for (int i = 0; i < 4 * STEPS; i++) sums[i / 4][n][i % 4] *= alpha[i % 2];
            }
        }
    }
    __device__ __forceinline__ void add(u32 values, const float (&s)[NT][4], int lane) {
        u32 p[NT][2];
#pragma unroll
        for (int i = 0; i < 2 * NT; i++)
            p[i / 2][i % 2] = transposed(narrow_pair<BF16>(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]));
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            u32 a[4];
            load_values(a, values, i, lane);
#pragma unroll
            for (int n = 0; n < NT; n++) multiply_warp<BF16>(sums[i][n], a, p[n][0], p[n][1]);
        }
    }
    __device__ __forceinline__ void leave(Joined& to, int warp, int lane) {
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const int row = n * 8 + 2 * t + c;
#pragma unroll
                for (int i = 4; i < 32; i *= 2) total[n][c] += __shfl_xor_sync(~0u, total[n][c], i);
                if (g == 0) to.most[warp][row] = most[n][c], to.total[warp][row] = total[n][c];
#pragma unroll
                for (int i = 0; i < 2 * STEPS; i++) to.sums[warp][row][i * 8 + g] = sums[i / 2][n][i % 2 * 2 + c];
            }
    }
};
