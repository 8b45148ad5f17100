// Matrix instructions of a warpgroup, one operand in registers, the other in shared memory; and what a cluster shares.
#pragma once
#include "pipeline.cuh"

// Activations in shared memory, of blocks of 32: [tile of 8 tokens][4 columns of 8 elements][8 tokens][8 float16].
__device__ __forceinline__ u64 matrix_at(u32 address) {
    constexpr u64 columns_apart = 128 / 16, tiles_apart = 512 / 16;
    return (u64)(address & 0x3FFFF) / 16 | columns_apart << 16 | tiles_apart << 32;
}

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;"); }
__device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;"); }

// Returns when all but the latest LEFT groups of products are done.
template <int LEFT>
__device__ __forceinline__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT));
}

// The compiler does not know when sums change: it takes them as changed here.
template <int COUNT>
__device__ __forceinline__ void keep(float (&sums)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

// d += a * tokens for 64 rows, 16 of K and all tokens; a warp's a and d are as in m16n8k16.
#define SUMS16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define SUMS32 SUMS16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS64 SUMS32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define INTO4(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define INTO8(d) INTO4(d), INTO4((d + 4))
#define INTO16(d) INTO8(d), INTO8((d + 8))
#define INTO32(d) INTO16(d), INTO16((d + 16))
#define INTO64(d) INTO32(d), INTO32((d + 32))
#define MULTIPLY(TOKENS, COUNT, A0, A1, A2, A3, AT)                                                                \
    __device__ __forceinline__ void multiply(float (&d)[COUNT], const u32 (&a)[4], u64 tokens) {                    \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #TOKENS "k16.f32.f16.f16 {" SUMS##COUNT                    \
                     "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " AT ", 1, 1, 1, 0;"                                     \
                     : INTO##COUNT(d)                                                                               \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tokens));                                    \
    }
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
