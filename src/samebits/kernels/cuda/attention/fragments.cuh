// Fragments of m16n8k16 from runs in shared memory, whose boxes of 64 elements are swapped by a pattern of 128 bytes.
#pragma once
#include "operands.cuh"

static constexpr int BOX_BYTES = 16 * 128;  // of 16 positions

template <bool Transposed>
__device__ __forceinline__ void load_matrices(u32 (&a)[4], u32 at) {
    if constexpr (Transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(at));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(at));
}

// 16 positions by 16 elements of keys from `step` * 16 on.
__device__ __forceinline__ void load_keys(u32 (&a)[4], u32 run, int step, int lane) {
    const int row = lane % 16, column = step % 4 * 2 + lane / 16;
    load_matrices<false>(a, run + step / 4 * BOX_BYTES + row * 128 + (column ^ row % 8) * 16);
}
// 16 elements, from `step` * 16 on, by 16 positions of values.
__device__ __forceinline__ void load_values(u32 (&a)[4], u32 run, int step, int lane) {
    const int row = lane % 8 + lane / 16 * 8, column = step % 4 * 2 + lane / 8 % 2;
    load_matrices<true>(a, run + step / 4 * BOX_BYTES + row * 128 + (column ^ row % 8) * 16);
}

// An 8 by 8 matrix of 16-bit numbers, its rows as columns.
__device__ __forceinline__ u32 transposed(u32 x) {
    u32 y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

// d += a * b.
template <bool Bf16>
__device__ __forceinline__ void multiply_warp(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    if constexpr (Bf16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
