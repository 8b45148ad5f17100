// Matrix instructions of a warpgroup: their order, their sums as operands; and what warps of several roles share.
#pragma once
#include "pipeline.cuh"

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

// Sums as operands of an instruction, the first ones.
#define SUMS8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define SUMS16 SUMS8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define SUMS32 SUMS16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS64 SUMS32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define INTO4(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define INTO8(d) INTO4(d), INTO4((d + 4))
#define INTO16(d) INTO8(d), INTO8((d + 8))
#define INTO32(d) INTO16(d), INTO16((d + 16))
#define INTO64(d) INTO32(d), INTO32((d + 32))

// Registers of a thread from here on; all warps of a warpgroup say it.
template <int COUNT>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
