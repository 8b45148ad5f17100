// Operands of attention: matrices in shared memory, pairs of 16-bit numbers.
#pragma once
#include "boxes.cuh"
#include "warpgroup.cuh"

// Rows of 64 elements in eights of 1024 bytes, their 16 bytes swapped by a pattern of 128.
static constexpr u64 SWAPPED = 1ull << 62, EIGHTS_APART = 1024 / 16;
__device__ __forceinline__ u64 rows_at(u32 address) {
    return (u64)(address & 0x3FFFF) / 16 | 1ull << 16 | EIGHTS_APART << 32 | SWAPPED;
}
// The same where rows are what is summed over: the next 64 columns lie behind all Rows.
template <int Rows>
__device__ __forceinline__ u64 columns_at(u32 address) {
    return (u64)(address & 0x3FFFF) / 16 | (u64)(Rows * 128 / 16) << 16 | EIGHTS_APART << 32 | SWAPPED;
}

#define WARPGROUP_PRODUCT(TYPE, N, COUNT, A0, A1, A2, A3, AT, P, TRANSPOSED)                                              \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                                                            \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" SUMS##COUNT "}, {" A0 ", " A1 ", " A2    \
                 ", " A3 "}, " AT ", p, 1, 1, " TRANSPOSED ";\n}"                                                          \
                 : INTO##COUNT(d)                                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)adds))
#define WARPGROUP_PRODUCTS(N, COUNT, A0, A1, A2, A3, AT, P)                                                               \
    template <bool Bf16, bool Transposed>                                                                                \
    __device__ __forceinline__ void multiply(float (&d)[COUNT], const u32 (&a)[4], u64 b, bool adds) {                   \
        if constexpr (Bf16 && Transposed)                                                                                \
            WARPGROUP_PRODUCT("bf16", N, COUNT, A0, A1, A2, A3, AT, P, "1");                                             \
        else if constexpr (Bf16)                                                                                         \
            WARPGROUP_PRODUCT("bf16", N, COUNT, A0, A1, A2, A3, AT, P, "0");                                             \
        else if constexpr (Transposed)                                                                                   \
            WARPGROUP_PRODUCT("f16", N, COUNT, A0, A1, A2, A3, AT, P, "1");                                              \
        else                                                                                                             \
            WARPGROUP_PRODUCT("f16", N, COUNT, A0, A1, A2, A3, AT, P, "0");                                              \
    }
// d = a * b, or d += a * b where it adds; a warp's a and d are as in m16n8k16.
WARPGROUP_PRODUCTS(64, 32, "%32", "%33", "%34", "%35", "%36", "%37")
WARPGROUP_PRODUCTS(128, 64, "%64", "%65", "%66", "%67", "%68", "%69")

// Writes zeros to the rows of a stage of Rows outside [low, high), by so many threads, of a warpgroup or a warp; matrix
// instructions of warpgroups see them. What nobody sees may be no number, and a weight of zero does not make one of it.
template <int Size, int Rows, int Threads>
__device__ __forceinline__ void clear_unseen(u32 place, int low, int high, int thread) {
    auto clear = [&](int first, int stop) {
        for (int i = first * 8 + thread; i < stop * 8; i += Threads)
#pragma unroll
            for (int half = 0; half < Size / 64; half++)
                asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(place + half * (Rows * 128) + i * 16), "r"(0)
                             : "memory");
    };
    clear(0, min(max(low, 0), Rows));  // the widest window begins so far below 0 that 8 times as much would wrap
    clear(min(max(high, 0), Rows), Rows);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#define NEG_INF __int_as_float(0xFF800000)
static constexpr float LOG2E = 1.4426950408889634f;

__device__ __forceinline__ float exp2_near(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <bool Bf16>
__device__ __forceinline__ u32 narrow_pair(float low, float high) {
    u32 pair;
    if constexpr (Bf16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Two elements as they lie in memory, from an even one on: float32 where they are wide, else 16-bit.
template <bool Wide>
struct Pair {
    u32 bits;
};
template <>
struct Pair<true> {
    float low, high;
};
template <bool Wide>
__device__ __forceinline__ Pair<Wide> load_pair(const void* from, u64 element) {
    if constexpr (Wide) {
        const float2 x = ((const float2*)from)[element / 2];
        return {x.x, x.y};
    } else {
        return {((const u32*)from)[element / 2]};
    }
}
template <bool Bf16>
__device__ __forceinline__ u32 narrow_pair(Pair<true> x) {
    return narrow_pair<Bf16>(x.low, x.high);
}
template <bool Bf16>
__device__ __forceinline__ u32 narrow_pair(Pair<false> x) {
    return x.bits;
}

template <bool Bf16, bool Wide>
__device__ __forceinline__ void store_pair(void* to, u64 element, float low, float high) {
    if constexpr (Wide)
        ((float2*)to)[element / 2] = make_float2(low, high);
    else
        ((u32*)to)[element / 2] = narrow_pair<Bf16>(low, high);
}

template <bool Bf16>
__device__ __forceinline__ bool both_finite(u32 pair) {
    constexpr u32 high = Bf16 ? 0x7F800000 : 0x7C000000, low = high >> 16;
    return (pair & high) != high && (pair & low) != low;
}
