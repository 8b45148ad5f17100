// Weights of a block of positions, in the place of their scores, and their sums with values.
#pragma once
#include "prompt.cuh"

static constexpr int ROWS = 8, COLUMNS = D / 16, SUMS = ROWS * COLUMNS;  // of a thread's sums

// A thread's place among the sums: rows 0 .. 3 and 16 .. 19 from `row` on, COLUMNS columns from `column` on.
struct SumPlace {
    u32 row, column, values;  // values: where the columns lie among a position's

    __device__ __forceinline__ SumPlace(u32 warp, u32 lane) : row(warp / 2 * 32 + lane / 8 * 4) {
        if (D == 128)
            column = (warp % 2 * 8 + lane % 8) * 8, values = (warp % 2 * 8 + lane % 8) * 16;
        else
            column = lane % 8 * 8 + warp % 2 * 4, values = warp % 2 * 128 + lane % 8 * 16;
    }
    __device__ __forceinline__ int row_of(int i) const { return row + i / 4 * 16 + i % 4; }
};

// A block of values to float32; positions outside [low, high) are zeros: what lies there may be no number. Of every 8 columns
// the first 4 lie in the first half of a position's, so that lanes store side by side.
__device__ __forceinline__ void widen_values(u32 from, u32 to, int low, int high) {
#pragma unroll
    for (int i = threadIdx.x; i < BN * (D / 8); i += THREADS) {
        const int position = i / 8 % BN, half = i / (8 * BN), chunk = i % 8;
        u32 a, b, c, d;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "r"(from + half * (BN * 128) + position * 128 + (chunk ^ position % 8) * 16));
        if (position < low || position >= high) a = b = c = d = 0;
        float x[8];
        widen(a, x[0], x[1]), widen(b, x[2], x[3]), widen(c, x[4], x[5]), widen(d, x[6], x[7]);
        const u32 place = to + position * VALUE_BYTES + (half * 8 + chunk) * 16;
        store_four(place, x[0], x[1], x[2], x[3]);
        store_four(place + VALUE_BYTES / 2, x[4], x[5], x[6], x[7]);
    }
}

// exp_of for x <= 0.
__device__ __forceinline__ float exp_below(float x) {
    constexpr float poly[] = {EXP_POLY};
    constexpr int count = sizeof(poly) / sizeof(float);
    const float clamped = fmaxf(x, EXP_LOWEST);
    const float shifted = clamped * LOG2E + ROUND_MAGIC, n = shifted - ROUND_MAGIC;
    const float r = fmaf(n, -LN2_HIGH, clamped) - n * LN2_LOW;  // that product is exact
    float series = poly[count - 1];
#pragma unroll
    for (int i = count - 2; i >= 0; i--) series = series * r + poly[i];
    const float mantissa = 1.0f + (r + (r * r) * series);
    const float y = __int_as_float(__float_as_int(mantissa) + (__float_as_int(shifted) << 23));  // the magic's bits leave
    return x < EXP_LOWEST ? 0.0f : y;
}

// Scores to weights, in place: two runs of a row by a thread; totals: their sums, before they are rounded.
__device__ __forceinline__ void weigh_block(u32 scores, float shift, float (&totals)[2]) {
    const int row = threadIdx.x % BM;
#pragma unroll 1
    for (int r = 0; r < 2; r++) {
        const int first = (threadIdx.x / BM * 2 + r) * RUN;
        float total = 0.0f;
#pragma unroll
        for (int n = 0; n < RUN; n++) {
            const u32 place = score_at(scores, first + n, row);
            float s;
            asm volatile("ld.shared.f32 %0, [%1];" : "=f"(s) : "r"(place));
            const float p = exp_below(s - shift);
            total += p;
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(place), "f"(operand(p)) : "memory");
        }
        totals[r] = total;
    }
}

// Sums plus the runs of a block, in order.
__device__ __forceinline__ void add_block(u32 weights, u32 values, const SumPlace& place, int runs, float (&sums)[SUMS]) {
    const u32 own_weights = weights + place.row * 4, own_values = values + place.values;
#pragma unroll 1
    for (int run = 0; run < runs; run++) {
        float c[SUMS];
#pragma unroll
        for (int n = 0; n < RUN; n++) {
            const u32 from = own_weights + (run * RUN + n) * QUERY_BYTES, v_from = own_values + (run * RUN + n) * VALUE_BYTES;
            const float4 p0 = load_four(from + n % 2 * 64), p1 = load_four(from + (n + 1) % 2 * 64);
            const float p[8] = {p0.x, p0.y, p0.z, p0.w, p1.x, p1.y, p1.z, p1.w};
            float v[COLUMNS];
#pragma unroll
            for (int j = 0; j < COLUMNS / 4; j++) {
                const float4 x = load_four(v_from + j * (VALUE_BYTES / 2));
                v[4 * j] = x.x, v[4 * j + 1] = x.y, v[4 * j + 2] = x.z, v[4 * j + 3] = x.w;
            }
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
                    c[i * COLUMNS + j] = fmaf(p[i], v[j], n ? c[i * COLUMNS + j] : 0.0f);
        }
#pragma unroll
        for (int i = 0; i < SUMS; i++) sums[i] += c[i];
    }
}
