// Blocks of 32 as quantize_q8 makes them, in the fast tier's arithmetic.
#pragma once
#include "pipeline.cuh"

__device__ __forceinline__ float settled(float x) { return fabsf(x) < 8.8817842e-16f ? 0.0f : x; }  // 2^-50

// |x| as a number that orders magnitudes, NaN above all.
__device__ __forceinline__ u32 magnitude_of(float x) { return __float_as_uint(x) & 0x7FFFFFFF; }

// The scale of a block with this largest magnitude, and what makes codes of its values; all is 0 below the smallest.
__device__ __forceinline__ float block_scale(float amax, float smallest) {
    return amax >= smallest ? amax * (1.0f / 127) : 0.0f;
}
__device__ __forceinline__ float block_factor(float amax, float smallest) {
    return amax >= smallest ? __fdividef(127.0f, amax) : 0.0f;
}
__device__ __forceinline__ int code_of(float x, float factor) { return min(127, max(-127, __float2int_rn(x * factor))); }
