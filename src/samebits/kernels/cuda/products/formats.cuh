// Tiles of 16 rows of a block-quantized weight in shared memory: where the planes are, and the numbers in them.
//
// Planes as kernels/triton/lib/weights.py describes them. A lane l of a warp reads what matrix instructions want of it:
// rows g = l / 4 and g + 8, word t = l % 4 of a block's codes: elements 4t .. 4t + 3 and 16 + 4t .. of the block.
#pragma once
#include "pipeline.cuh"

enum Format { q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k, nvfp4, mxfp4 };

__host__ __device__ constexpr bool is_super(int f) { return f == q4_k || f == q5_k || f == q6_k; }
__host__ __device__ constexpr bool has_halves(int f) { return f == q6_k || f == nvfp4; }
__host__ __device__ constexpr bool has_fifth_bits(int f) { return f == q5_0 || f == q5_1 || f == q5_k; }
__host__ __device__ constexpr bool has_offset(int f) { return f == q4_1 || f == q5_1; }
__host__ __device__ constexpr bool has_sub_offset(int f) { return f == q4_k || f == q5_k; }

// Bytes that a row has in a plane, a block of 32; d and m of a super-block come once in 8 blocks.
struct Bytes {
    int codes, high, d, m, sub, msub;
};
__host__ __device__ constexpr Bytes bytes_of(int f) {
    return Bytes{f == q8_0 ? 32 : 16,
                 has_fifth_bits(f) ? 4 : f == q6_k ? 8 : 0,
                 f == nvfp4 ? 0 : f == mxfp4 ? 1 : 2,
                 has_offset(f) || has_sub_offset(f) ? 2 : 0,
                 has_sub_offset(f) ? 1 : has_halves(f) ? 2 : 0,
                 has_sub_offset(f) ? 1 : 0};
}

__device__ __forceinline__ float from_half(u16 h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

struct Offsets {  // of the planes in a weight's data
    u64 codes, high, d, m, sub, msub, power;
};

// A tile's part of a stage of BLOCKS blocks in shared memory.
template <int F, int BLOCKS>
struct TileStage {
    static constexpr Bytes B = bytes_of(F);
    static constexpr int GROUPS = is_super(F) ? (BLOCKS + 7) / 8 : BLOCKS;  // entries of d and m
    static constexpr int codes = 0;
    static constexpr int high = codes + BLOCKS * 16 * B.codes;
    static constexpr int d = high + BLOCKS * 16 * B.high;
    static constexpr int m = d + GROUPS * 16 * B.d;
    static constexpr int sub = m + GROUPS * 16 * B.m;
    static constexpr int msub = sub + BLOCKS * 16 * B.sub;
    static constexpr int bytes = msub + BLOCKS * 16 * B.msub;

    __device__ static u32 num_bytes(int blocks) {  // that `blocks` of a tile take
        int groups = is_super(F) ? (blocks + 7) / 8 : blocks;
        return 16 * (blocks * (B.codes + B.high + B.sub + B.msub) + groups * (B.d + B.m));
    }

    // Asks for blocks [first, first + blocks) of a tile, plane by plane.
    __device__ static void copy(u32 to, const u8* data, const Offsets& at, u64 tile, int nb, int first, int blocks,
                                u32 barrier) {
        auto plane = [&](int place, u64 offset, int width, bool shared) {
            const int per = shared && is_super(F) ? 8 : 1;
            const u64 from = offset + (tile * (nb / per) + first / per) * (16 * width);
            copy_bulk(to + place, data + from, (blocks + per - 1) / per * (16 * width), barrier);
        };
        plane(codes, at.codes, B.codes, false);
        if constexpr (B.high > 0) plane(high, at.high, B.high, false);
        if constexpr (B.d > 0) plane(d, at.d, B.d, true);
        if constexpr (B.m > 0) plane(m, at.m, B.m, true);
        if constexpr (B.sub > 0) plane(sub, at.sub, B.sub, false);
        if constexpr (B.msub > 0) plane(msub, at.msub, B.msub, false);
    }
};

template <typename T>
__device__ __forceinline__ T read_shared(const u8* at) {
    return *(const T*)at;
}

// Words of a lane's codes as stored: [row g or g + 8][half of the block]; four-bit formats have both halves in the first.
struct Words {
    u32 w[2][2];
};

template <int F, int BLOCKS>
__device__ __forceinline__ Words stored_words(const u8* tile_stage, int block, u32 lane) {
    Words x;
    if constexpr (F == q8_0) {
        for (int i = 0; i < 4; i++) x.w[i % 2][i / 2] = read_shared<u32>(tile_stage + block * 512 + i * 128 + lane * 4);
    } else {
        for (int r = 0; r < 2; r++) x.w[r][0] = read_shared<u32>(tile_stage + block * 256 + r * 128 + lane * 4);
        x.w[0][1] = x.w[1][1] = 0;
    }
    return x;
}
