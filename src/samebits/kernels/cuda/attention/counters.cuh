// Work that blocks draw, so that they share pieces of any length evenly: counters[0] are drawn, counters[1] blocks have ended.
#pragma once

// The next number, one that no block has had: blocks begin with their own. A whole warp asks.
__device__ __forceinline__ void draw(int& number, int* counters, int lane) {
    if (lane == 0) number = gridDim.x + atomicAdd(counters, 1);
    number = __shfl_sync(~0u, number, 0);
}

// Said by a block when it draws no more: the one that says so last leaves both at zero.
__device__ __forceinline__ void end_drawing(int* counters, int lane) {
    if (lane == 0) {
        __threadfence();
        if (atomicAdd(counters + 1, 1) == gridDim.x - 1) counters[0] = counters[1] = 0;
    }
}
