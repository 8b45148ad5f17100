// The definition's arithmetic, see docs/numerics.md: elementary functions, settled numbers, operands of exact products.
// Compiled without fused multiplications and additions; the constants come from core/numerics.
#pragma once
#include "pipeline.cuh"

#define NEG_INF __int_as_float(0xFF800000)
static constexpr float LARGEST = 3.4028234663852886e38f, LARGEST_OPERAND = BF16 ? 9223372036854775808.0f : LARGEST;

// e^(n ln 2 + r), of n + ROUND_MAGIC and r.
__device__ __forceinline__ float exp_series(float shifted, float r) {
    constexpr float poly[] = {EXP_POLY};
    constexpr int count = sizeof(poly) / sizeof(float);
    float series = poly[count - 1];
#pragma unroll
    for (int i = count - 2; i >= 0; i--) series = series * r + poly[i];
    const float mantissa = 1.0f + (r + (r * r) * series);
    return __int_as_float(__float_as_int(mantissa) + ((__float_as_int(shifted) - __float_as_int(ROUND_MAGIC)) << 23));
}

__device__ __forceinline__ float exp_of(float x) {
    const float clamped = fminf(fmaxf(x, EXP_LOWEST), EXP_HIGHEST);
    const float shifted = clamped * LOG2E + ROUND_MAGIC, n = shifted - ROUND_MAGIC;
    float y = exp_series(shifted, (clamped - n * LN2_HIGH) - n * LN2_LOW);
    y = x < EXP_LOWEST ? 0.0f : y;  // one after the other: choices, no branches
    y = x > EXP_HIGHEST ? __int_as_float(0x7F800000) : y;
    return x != x ? x : y;
}

// The same for x <= 0, in fewer instructions: the product with LN2_HIGH is exact, so that it may be fused.
__device__ __forceinline__ float exp_below(float x) {
    const float clamped = fmaxf(x, EXP_LOWEST);
    const float shifted = clamped * LOG2E + ROUND_MAGIC, n = shifted - ROUND_MAGIC;
    const float y = exp_series(shifted, fmaf(n, -LN2_HIGH, clamped) - n * LN2_LOW);
    return x < EXP_LOWEST ? 0.0f : y;
}

// 1/x for 2^-100 <= x <= 2^100.
__device__ __forceinline__ float recip(float x) {
    float y = __int_as_float(0x7EF311C7 - __float_as_int(x));
#pragma unroll
    for (int i = 0; i < 4; i++) y = y + y * (1.0f - x * y);
    return y;
}

__device__ __forceinline__ float settle(float x) { return fabsf(x) < SMALLEST ? 0.0f : x; }

// A pair of the cache's numbers as float32, exactly.
__device__ __forceinline__ void widen(u32 pair, float& low, float& high) {
    if constexpr (BF16) {
        low = __uint_as_float(pair << 16), high = __uint_as_float(pair & 0xFFFF0000);
    } else {
        asm("{\n.reg .f16 a, b;\nmov.b32 {a, b}, %2;\ncvt.f32.f16 %0, a;\ncvt.f32.f16 %1, b;\n}"
            : "=f"(low), "=f"(high)
            : "r"(pair));
    }
}

// float32 rounded to the cache's type: its bits.
__device__ __forceinline__ u16 narrow(float x) {
    u16 y;
    if constexpr (BF16)
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    else
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

// The same, as float32: an operand of an exact product.
__device__ __forceinline__ float operand(float x) {
    float low, high;
    widen(narrow(x), low, high);
    return low;
}

// A result as it is stored, settled: in the cache's type, of which float16 has small numbers that become +0.
__device__ __forceinline__ u16 settled_narrow(float x) {
    return narrow(BF16 ? settle(x) : fabsf(x) <= 2.98023223876953125e-8f ? 0.0f : x);
}
