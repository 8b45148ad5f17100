// The weights of BN positions, from their scores, in one walk over all positions.
#pragma once
#include "operands.cuh"

static constexpr int COLUMNS = BN / 8;  // matrices of 8 positions

// Online softmax of a thread's two rows.
struct Softmax {
    float m[2] = {NEG_INF, NEG_INF}, total[2] = {0.0f, 0.0f};

    // Scores to weights, in place; alpha: what sums so far are multiplied by.
    __device__ __forceinline__ void weigh(float (&s)[4 * COLUMNS], float scale, float (&alpha)[2]) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float most = NEG_INF;
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) most = fmaxf(most, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
            const float m_new = fmaxf(m[r], most * scale), shift = m_new == NEG_INF ? 0.0f : m_new;
            alpha[r] = exp2_near(m[r] - shift);
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    float& x = s[4 * j + 2 * r + c];
                    x = exp2_near(fmaf(x, scale, -shift));
                    sum += x;
                }
            total[r] = fmaf(total[r], alpha[r], sum);
            m[r] = m_new;
        }
    }
};
