// Copies of a cache's boxes.
#pragma once
#include "pipeline.cuh"

struct alignas(64) TensorMap {
    u64 words[16];
};

// A box of elements of positions of a page and head, as large as the map says and in its order.
__device__ __forceinline__ void copy_box(u32 to, const TensorMap& map, int element, int slot, int head, int page,
                                         u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
        "l"(&map), "r"(element), "r"(slot), "r"(head), "r"(page), "r"(barrier)
        : "memory");
}
