// Rows [T, K] of float32 as int8 blocks of 32, and as the float16 values that products of the fast tier take
// (triton/products/fast/activations.py), the fragments of wide.cu or plain rows: a launch less between them.
// NORMED: residual += x first, and what is cut into blocks is rms_norm(residual) * weight.
//
// A block owns a row, a thread 16 elements of it: half a block of 32. Sums are in an order of their own, for the fast tier.
// Compiled with K (a multiple of 512, 16384 at most), NORMED and PLAIN (0 or 1).
#include "int8_blocks.cuh"

static constexpr int WARPS = K / 512;

struct Rows {
    const float* x;
    float* residual;
    const float* weight;
    signed char* codes;
    float* scales;
    u32* values;        // two float16 to a word: fragments [K / 32][width][128], or rows [T][K / 2]
    float* row_scales;  // a power of two each, that values are to be multiplied by
    int* fault;
};
struct Numbers {
    int fault_number, width;  // width: tiles of 8 tokens
    float eps, smallest, largest;  // magnitudes of a block, between which it has codes other than 0 and none is refused
};

__device__ __forceinline__ void load(float (&to)[16], const float* from) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float4 four = ((const float4*)from)[i];
        to[4 * i] = four.x, to[4 * i + 1] = four.y, to[4 * i + 2] = four.z, to[4 * i + 3] = four.w;
    }
}

__device__ __forceinline__ u32 halves(float low, float high) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) blocks_of_rows(Rows rows, Numbers numbers) {
    __shared__ float sums[WARPS];
    __shared__ u32 magnitudes[WARPS];
    const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32, token = blockIdx.x;
    const u64 first = (u64)token * K + thread * 16;
    float v[16], by[16];
    if constexpr (NORMED) load(by, rows.weight + thread * 16);
    wait_for_previous();
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    load(v, rows.x + first);
    if constexpr (NORMED) {
        float before[16], sum = 0.0f;
        load(before, rows.residual + first);
#pragma unroll
        for (int i = 0; i < 16; i++) v[i] = settled(v[i] + before[i]), sum = fmaf(v[i], v[i], sum);
#pragma unroll
        for (int i = 0; i < 4; i++)
            ((float4*)(rows.residual + first))[i] = make_float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
#pragma unroll
        for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffff, sum, apart);
        if (lane == 0) sums[warp] = sum;
        __syncthreads();
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) total += sums[w];
        const float factor = rsqrtf(settled(total) * (1.0f / K) + numbers.eps);
#pragma unroll
        for (int i = 0; i < 16; i++) v[i] = settled(settled(v[i] * factor) * by[i]);
    }

    u32 magnitude = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) magnitude = max(magnitude, magnitude_of(v[i]));
    magnitude = max(magnitude, __shfl_xor_sync(0xffffffff, magnitude, 1));
    const u32 of_warp = __reduce_max_sync(0xffffffff, magnitude);
    if (lane == 0) magnitudes[warp] = of_warp;
    __syncthreads();
    u32 of_row = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) of_row = max(of_row, magnitudes[w]);
    const float amax = __uint_as_float(magnitude), scale = block_scale(amax, numbers.smallest);
    if (!(amax <= numbers.largest)) *rows.fault = numbers.fault_number;
    const float to_code = block_factor(amax, numbers.smallest);
    u32 power = __float_as_uint(block_scale(__uint_as_float(of_row), numbers.smallest)) & 0x7F800000;
    power = power == 0 ? 0x3F800000 : max(power, 0x04800000u);
    const u32 unit = power - 0x04000000;  // the largest scale becomes 2^8 to 2^9: see activations.py
    const float to_half = scale * __uint_as_float(0x7F000000 - unit);

    u32 words[4], pairs[2][4];  // pairs: elements 0 and 2, 1 and 3 of each four; of plain rows 0 and 1, 2 and 3
#pragma unroll
    for (int f = 0; f < 4; f++) {
        int c[4];
#pragma unroll
        for (int i = 0; i < 4; i++) c[i] = code_of(v[4 * f + i], to_code);
        words[f] = (c[0] & 255) | (c[1] & 255) << 8 | (c[2] & 255) << 16 | (u32)c[3] << 24;
        pairs[0][f] = halves((float)c[0] * to_half, (float)c[PLAIN ? 1 : 2] * to_half);
        pairs[1][f] = halves((float)c[PLAIN ? 2 : 1] * to_half, (float)c[3] * to_half);
    }
    *(uint4*)(rows.codes + first) = make_uint4(words[0], words[1], words[2], words[3]);
    const u32 block = thread / 2, half = thread % 2;
    if (half == 0) rows.scales[(u64)token * (K / 32) + block] = scale;
    if constexpr (PLAIN) {
        uint4* to = (uint4*)(rows.values + first / 2);
        to[0] = make_uint4(pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1]);
        to[1] = make_uint4(pairs[0][2], pairs[1][2], pairs[0][3], pairs[1][3]);
    } else {
        u32* to = rows.values + ((u64)block * numbers.width + token / 8) * 128 + half * 64 + token % 8 * 4;
        *(uint4*)to = make_uint4(pairs[0][0], pairs[0][1], pairs[0][2], pairs[0][3]);
        *(uint4*)(to + 32) = make_uint4(pairs[1][0], pairs[1][1], pairs[1][2], pairs[1][3]);
    }
    if (thread == 0) rows.row_scales[token] = __uint_as_float(unit);
}
