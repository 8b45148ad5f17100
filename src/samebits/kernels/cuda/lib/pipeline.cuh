// Weights and activations on their way into shared memory: bulk copies that end at barriers, in stages.
#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u32 shared_at(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}

__device__ __forceinline__ void expect_bytes(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void wait_barrier(u32 barrier, u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

__device__ __forceinline__ void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void copy_bulk(u32 to, const void* from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
                 : "memory");
}

// A thread's warp in its block, as a number that the compiler knows to be the same in all lanes: what follows from it is
// computed once for a warp, such as addresses of stages.
__device__ __forceinline__ u32 warp_index() { return __shfl_sync(0xffffffff, threadIdx.x / 32, 0); }

// True in one lane of a warp, all of whose lanes must ask.
__device__ __forceinline__ bool elected() {
    u32 chosen;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.b32 %0, 1, 0, p;\n}" : "=r"(chosen));
    return chosen;
}

// A barrier of `threads` threads; 0 is __syncthreads's own.
__device__ __forceinline__ void sync_some(u32 id, u32 threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// What the launch before wrote may be read from here on. The next launch begins when this one ends: let in earlier, its
// blocks would go where these leave room by chance, and a product with what follows takes 2 us longer.
__device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// A place in the ring of STAGES, and the parity that its barriers have there.
template <int SIZE>
struct Ring {
    u32 stage = 0, parity = 0;
    __device__ __forceinline__ void next() {
        if (++stage == SIZE) stage = 0, parity ^= 1;
    }
};
