// Sums of values: weights of a block of positions times theirs.
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

// A position's weights of a thread's rows, and values of its columns.
struct Operands {
    float p[ROWS], v[COLUMNS];

    __device__ __forceinline__ void load(u32 weights, u32 swapped, u32 values, int n) {
        const float4 p0 = load_four((n % 2 ? swapped : weights) + n * QUERY_BYTES);
        const float4 p1 = load_four((n % 2 ? weights : swapped) + n * QUERY_BYTES);
        p[0] = p0.x, p[1] = p0.y, p[2] = p0.z, p[3] = p0.w, p[4] = p1.x, p[5] = p1.y, p[6] = p1.z, p[7] = p1.w;
#pragma unroll
        for (int j = 0; j < COLUMNS / 4; j++) {
            const float4 x = load_four(values + n * VALUE_BYTES + j * (VALUE_BYTES / 2));
            v[4 * j] = x.x, v[4 * j + 1] = x.y, v[4 * j + 2] = x.z, v[4 * j + 3] = x.w;
        }
    }
};

// Sums plus the runs of a block, in order.
__device__ __forceinline__ void add_block(u32 weights, u32 values, const SumPlace& place, int runs, float (&sums)[SUMS]) {
    u32 own_values = values + place.values, own_weights = score_at(weights, 0, place.row);
    Operands x[2];
    x[0].load(own_weights, own_weights ^ 64, own_values, 0);
#pragma unroll 1
    for (int run = 0; run < runs; run++) {
        float c[SUMS];
#pragma unroll
        for (int n = 0; n < RUN; n++) {
            if (n + 1 < RUN) {
                x[(n + 1) % 2].load(own_weights, own_weights ^ 64, own_values, n + 1);
            } else {  // the next run's first; after the last one, something that is not used
                const int next = run + 1 < runs ? run + 1 : 0;
                own_weights = score_at(weights, next * RUN, place.row);
                own_values = values + place.values + next * (RUN * VALUE_BYTES);
                x[0].load(own_weights, own_weights ^ 64, own_values, 0);
            }
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
#pragma unroll
                for (int i = 0; i < ROWS; i++)
                    c[i * COLUMNS + j] = fmaf(x[n % 2].p[i], x[n % 2].v[j], n ? c[i * COLUMNS + j] : 0.0f);
        }
#pragma unroll
        for (int i = 0; i < SUMS; i++) sums[i] += c[i];
    }
}

// A thread's sums of whole cuts, in shared memory: SUMS numbers in fours, which no other thread touches.
struct Cuts {
    u32 place;

    __device__ __forceinline__ explicit Cuts(u32 memory) : place(memory + CUTS + threadIdx.x * 16) {}

    template <class Take>
    __device__ __forceinline__ void each_four(Take take) const {
#pragma unroll
        for (int i = 0; i < SUMS; i += 4) take(i, place + i / 4 * (THREADS * 16));
    }
    // What was saved before, or zeros.
    __device__ __forceinline__ void begin(const float* saved) const {
        each_four([&](int i, u32 at) {
            const float4 x = saved ? ((const float4*)saved)[i / 4 * THREADS] : float4{};
            store_four(at, x.x, x.y, x.z, x.w);
        });
    }
    __device__ __forceinline__ void save(float* to) const {
        each_four([&](int i, u32 at) { ((float4*)to)[i / 4 * THREADS] = load_four(at); });
    }
    __device__ __forceinline__ void load(float (&x)[SUMS]) const {
        each_four([&](int i, u32 at) {
            const float4 four = load_four(at);
            x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
        });
    }
    // Plus the sums of a cut, which are zeros then.
    __device__ __forceinline__ void add(float (&sums)[SUMS]) const {
        each_four([&](int i, u32 at) {
            const float4 x = load_four(at);
            store_four(at, x.x + sums[i], x.y + sums[i + 1], x.z + sums[i + 2], x.w + sums[i + 3]);
            sums[i] = sums[i + 1] = sums[i + 2] = sums[i + 3] = 0.0f;
        });
    }
};
