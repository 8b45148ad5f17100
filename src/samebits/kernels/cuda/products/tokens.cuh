// Activations in shared memory as operands of a warpgroup's matrix instructions; and what a cluster shares.
#pragma once
#include "warpgroup.cuh"

// The descriptor of activations in shared memory, of blocks of 32: [tile of 8 tokens][4 columns of 8 elements][8 tokens]
// [8 float16]. 16ths of a distance may be added to it: as a sum of 64 bits that is one instruction, put together of halves
// it would be three.
__device__ __forceinline__ u64 matrix_at(u32 address) {
    constexpr u32 columns_apart = 128 / 16, tiles_apart = 512 / 16;
    return (u64)tiles_apart << 32 | columns_apart << 16 | (address & 0x3FFFF) / 16;
}

// d += a * tokens for 64 rows, 16 of K and all tokens; a warp's a and d are as in m16n8k16.
#define MULTIPLY(TOKENS, COUNT, A0, A1, A2, A3, AT)                                                                \
    __device__ __forceinline__ void multiply(float (&d)[COUNT], const u32 (&a)[4], u64 tokens) {                    \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #TOKENS "k16.f32.f16.f16 {" SUMS##COUNT                    \
                     "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " AT ", 1, 1, 1, 0;"                                     \
                     : INTO##COUNT(d)                                                                               \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tokens));                                     \
    }
MULTIPLY(16, 8, "%8", "%9", "%10", "%11", "%12")
MULTIPLY(32, 16, "%16", "%17", "%18", "%19", "%20")
MULTIPLY(64, 32, "%32", "%33", "%34", "%35", "%36")
MULTIPLY(128, 64, "%64", "%65", "%66", "%67", "%68")

__device__ __forceinline__ void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// What lies at the same address of another block's shared memory.
__device__ __forceinline__ float4 read_cluster(u32 address, u32 block) {
    float4 x;
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %4, %5;\n"
        "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
        : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
        : "r"(address), "r"(block)
        : "memory");
    return x;
}
