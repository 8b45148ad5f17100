// Values of a block of 32 as float16, in the order of float16 matrix instructions: code times scale plus offset.
//
// A word of codes holds elements e .. e + 3 in its bytes; the pairs (e, e + 2) and (e + 1, e + 3) come out of it with
// masks alone, so that is the order of K here, and activations come in the same. A masked code is a float16 already,
// below the normal ones: in bits 0 .. it is code * 2^-24. So one multiply-add makes its value, with scales that were
// brought near the end of float16 by a power of two of the weight (lib/weights.py): values are 2^-20 times that power.
#pragma once
#include "formats.cuh"

__device__ __forceinline__ u32 sub2(u32 a, u32 b) {
    u32 r;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
__device__ __forceinline__ u32 mul2(u32 a, u32 b) {
    u32 r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
__device__ __forceinline__ u32 fma2(u32 a, u32 b, u32 c) {
    u32 r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
// (word & mask) | bits
__device__ __forceinline__ u32 pick(u32 word, u32 mask, u32 bits) {
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(word), "r"(mask), "r"(bits));
    return r;
}
// A half twice: an instruction takes it from where it is.
__device__ __forceinline__ u32 twice(u32 half) {
    u32 r;
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nmov.b32 %0, {low, low};\n}" : "=r"(r) : "r"(half));
    return r;
}
__device__ __forceinline__ u32 twice_upper(u32 halves) {
    u32 r;
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nmov.b32 %0, {high, high};\n}" : "=r"(r) : "r"(halves));
    return r;
}
__device__ __forceinline__ u32 load_shared(u32 at) {
    u32 x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(at));
    return x;
}
__device__ __forceinline__ uint2 load_shared_pair(u32 at) {
    uint2 x;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(at));
    return x;
}

static constexpr u32 H1024 = 0x64006400;  // 1024 + code is code | 0x6400

// float16 twice
static constexpr u32 TIMES_16 = 0x4C004C00;
static constexpr u32 POW_M10 = 0x14001400, POW_M20 = 0x00100010;  // 2^-10, 2^-20
static constexpr u32 MINUS_POW_M20 = 0x80108010;

// Two rows of a tile are computed as pairs, float16 each: those of a lane's fragments. They are rows g and g + 8, or 2g and
// 2g + 1 of formats whose scales are single bytes.
__host__ __device__ constexpr bool has_neighbours(int f) { return has_sub_offset(f); }
__device__ __forceinline__ constexpr u32 row_of(int f, u32 g, int r) { return has_neighbours(f) ? 2 * g + r : g + 8 * r; }

// What the blocks of a super-block share: d and m times the power.
struct RowPair {
    u32 d, m;
};

// Scales and offsets of a block, for its lower and its upper half.
struct Scales {
    u32 low, high, low_offset, high_offset;
};

// The power of two of a weight, twice in a word.
struct Powers {
    u32 scale, offset;  // offset: 2^-20 times it, exact where scales and offsets are float16 by themselves
    float restore;      // what brings sums back
};
template <int F>
__device__ __forceinline__ Powers powers_of(const u8* at) {
    const u32 scale = *(const u32*)at;
    return {scale, mul2(scale, POW_M20), F == nvfp4 ? 128.0f : 0x1p20f / from_half((u16)scale)};
}

// Bytes of a word as float16: elements (0, 2) and (1, 3).
__device__ __forceinline__ void widen_bytes(u32 word, u32& even, u32& odd) {
    even = __byte_perm(word, 0, 0x4240);
    odd = __byte_perm(word, 0, 0x4341);
}

// Codes of a row as they are: [half][even, odd].
template <int F>
__device__ __forceinline__ void code_halves(u32 w, u32 w_next, uint2 high, u32 t, u32 (&c)[2][2]) {
    if constexpr (F == q4_0 || F == q4_1 || F == q4_k) {
        u32 odd = w >> 8;
        c[0][0] = w & 0x000F000F, c[0][1] = odd & 0x000F000F;
        c[1][0] = w & 0x00F000F0, c[1][1] = odd & 0x00F000F0;
    } else if constexpr (F == q8_0) {
        widen_bytes(w ^ 0x80808080, c[0][0], c[0][1]);
        widen_bytes(w_next ^ 0x80808080, c[1][0], c[1][1]);
    } else if constexpr (F == nvfp4) {
        // E2M1 as float16 is its value times 2^-14
        constexpr u32 sign = 0x80008000, rest = 0x0E000E00;
        c[0][0] = pick(w << 12, sign, (w << 9) & rest);
        c[0][1] = pick(w << 4, sign, (w << 1) & rest);
        c[1][0] = pick(w << 8, sign, (w << 5) & rest);
        c[1][1] = pick(w, sign, (w >> 3) & rest);
    } else {
        u32 first, second;
        if constexpr (F == q6_k) {
            const u32 left = 4 - 2 * t;  // mod 32: what comes from other bytes is masked
            first = (w & 0x0F0F0F0F) | (__funnelshift_l(high.x, high.x, left) & 0x30303030);
            second = ((w >> 4) & 0x0F0F0F0F) | (__funnelshift_l(high.y, high.y, left) & 0x30303030);
        } else {
            u32 bits = high.x >> t;
            first = (w & 0x0F0F0F0F) | (bits & 0x01010101) << 4;
            second = ((w >> 4) & 0x0F0F0F0F) | (bits & 0x10101010);
        }
        widen_bytes(first, c[0][0], c[0][1]);
        widen_bytes(second, c[1][0], c[1][1]);
    }
}

// COUNT matrices of 8 rows of 16 bytes; lanes 8i .. 8i + 7 say where the rows of matrix i are. A lane gets word l % 4 of row
// l / 4, or transposed elements l / 4 of rows 2 (l % 4) and the next.
template <int COUNT, bool TRANSPOSED>
__device__ __forceinline__ void read_matrices(u32 (&x)[COUNT], u32 at) {
    static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4);
#define READ(X, T, TO) asm volatile("ldmatrix.sync.aligned.m8n8." X T ".shared.b16 {" TO
    if constexpr (COUNT == 1 && TRANSPOSED)
        READ("x1", ".trans", "%0}, [%1];") : "=r"(x[0]) : "r"(at));
    else if constexpr (COUNT == 2 && TRANSPOSED)
        READ("x2", ".trans", "%0, %1}, [%2];") : "=r"(x[0]), "=r"(x[1]) : "r"(at));
    else if constexpr (COUNT == 4 && TRANSPOSED)
        READ("x4", ".trans", "%0, %1, %2, %3}, [%4];") : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at));
    else if constexpr (COUNT == 2)
        READ("x2", "", "%0, %1}, [%2];") : "=r"(x[0]), "=r"(x[1]) : "r"(at));
    else
        READ("x4", "", "%0, %1, %2, %3}, [%4];") : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at));
#undef READ
}

// d and m of a super-block; of other formats nothing.
template <int F, int BLOCKS>
__device__ __forceinline__ RowPair shared_pair(u32 stage, int block, u32 lane, const Powers& powers) {
    using S = TileStage<F, BLOCKS>;
    RowPair x = {0, 0};
    if constexpr (F == q6_k) {
        u32 d[1];
        read_matrices<1, true>(d, stage + S::d + block / 8 * 32 + lane % 2 * 16);
        x.d = mul2(mul2(d[0], powers.scale), TIMES_16);
    } else if constexpr (has_sub_offset(F)) {
        const u32 at = stage + block / 8 * 32 + lane / 4 * 4;
        x.d = mul2(load_shared(at + S::d), powers.scale), x.m = mul2(load_shared(at + S::m), powers.scale);
    }
    return x;
}

// Words of scales, and of offsets that lie in a plane of their own, of COUNT blocks.
template <int F, int BLOCKS, int COUNT>
__device__ __forceinline__ void scale_words(u32 stage, int block, u32 lane, u32 (&d)[COUNT], u32 (&m)[COUNT]) {
    using S = TileStage<F, BLOCKS>;
    const u32 half = lane % 2, of = block + lane / 8;
    if constexpr (has_sub_offset(F)) {
        read_matrices<COUNT, true>(d, stage + (half ? S::msub : S::sub) + of * 16);
    } else {
        read_matrices<COUNT, true>(d, stage + (has_halves(F) ? S::sub : S::d) + of * 32 + half * 16);
        if constexpr (has_offset(F)) read_matrices<COUNT, true>(m, stage + S::m + of * 32 + half * 16);
    }
}

template <int F>
__device__ __forceinline__ Scales scales_of(u32 d, u32 m, const RowPair& pair, const Powers& powers) {
    Scales x;
    if constexpr (F == nvfp4) {
        // e4m3 as float16 is its value times 2^-8; here 2^7
        u32 low = __byte_perm(d, 0, 0x2404), high = __byte_perm(d, 0, 0x3414);
        x.low = mul2(pick(low, 0x80008000, low >> 1 & 0x3F803F80), 0x78007800);
        x.high = mul2(pick(high, 0x80008000, high >> 1 & 0x3F803F80), 0x78007800);
        x.low_offset = x.high_offset = 0;
    } else if constexpr (F == q6_k) {
        d ^= 0x80808080;
        x.low = mul2(sub2(__byte_perm(d, 0x64646464, 0x4240), 0x64806480), pair.d);
        x.high = mul2(sub2(__byte_perm(d, 0x64646464, 0x4341), 0x64806480), pair.d);
        x.low_offset = mul2(x.low, 0x80208020), x.high_offset = mul2(x.high, 0x80208020);  // -32 * 2^-24
    } else {
        u32 scale;
        if constexpr (has_sub_offset(F)) {
            scale = mul2(sub2(__byte_perm(d, 0x64646464, 0x4140), H1024), pair.d);
            // msub times -2^-20, which is exact. Not times the power too: that may be less than float16 holds.
            x.low_offset = mul2(fma2(__byte_perm(d, 0x64646464, 0x4342), MINUS_POW_M20, POW_M10), pair.m);
        } else {
            scale = mul2(d, powers.scale);
            if constexpr (has_offset(F))
                x.low_offset = mul2(m, powers.offset);
            else  // -(the code of 0) * 2^-20: 8, 16 or 128
                x.low_offset = mul2(scale, F == q4_0 ? 0x80808080 : F == q5_0 ? 0x81008100 : 0x88008800);
        }
        x.high_offset = x.low_offset;
        x.low = mul2(scale, TIMES_16);
        constexpr bool has_nibbles = F == q4_0 || F == q4_1 || F == q4_k;  // the upper ones are in bits 4 .. already
        x.high = has_nibbles ? scale : x.low;
    }
    return x;
}

// Words of codes of COUNT blocks: [block][row g or its partner][half]; four-bit formats have both halves in the first.
template <int F, int BLOCKS, int COUNT>
__device__ __forceinline__ void code_words(u32 stage, int block, u32 lane, u32 (&w)[COUNT][2][2]) {
    const u32 row = has_neighbours(F) ? lane % 8 * 2 + lane / 8 % 2 : lane % 16;
    const u32 at = stage + row * 16 + lane / 16 * 256;
    if constexpr (F == q8_0) {
#pragma unroll
        for (int b = 0; b < COUNT; b++) {
            u32 x[4];
            read_matrices<4, false>(x, at + (block + b) * 512);
            for (int i = 0; i < 4; i++) w[b][i % 2][i / 2] = x[i];
        }
    } else {
        constexpr int STEP = COUNT % 2 ? 1 : 2;
#pragma unroll
        for (int b = 0; b < COUNT; b += STEP) {
            u32 x[2 * STEP];
            read_matrices<2 * STEP, false>(x, at + (block + b) * 256);
            for (int i = 0; i < 2 * STEP; i++) w[b + i / 2][i % 2][0] = x[i], w[b + i / 2][i % 2][1] = 0;
        }
    }
}

// Fragments of the halves of COUNT blocks: a lane's two rows by turns.
template <int F, int BLOCKS, int COUNT>
__device__ __forceinline__ void halves(u32 stage, int block, u32 lane, const Powers& powers, u32 (&low)[COUNT][4],
                                       u32 (&high)[COUNT][4]) {
    using S = TileStage<F, BLOCKS>;
    const RowPair pair = shared_pair<F, BLOCKS>(stage, block, lane, powers);
    u32 d[COUNT], m[COUNT] = {}, w[COUNT][2][2];
    scale_words<F, BLOCKS, COUNT>(stage, block, lane, d, m);
    code_words<F, BLOCKS, COUNT>(stage, block, lane, w);
#pragma unroll
    for (int b = 0; b < COUNT; b++) {
        const Scales s = scales_of<F>(d[b], m[b], pair, powers);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const u32 row = (block + b) * 16 + row_of(F, lane / 4, r);
            uint2 bits = make_uint2(0, 0);
            if constexpr (F == q6_k) bits = load_shared_pair(stage + S::high + row * 8);
            if constexpr (has_fifth_bits(F)) bits.x = load_shared(stage + S::high + row * 4);
            u32 c[2][2];
            code_halves<F>(w[b][r][0], w[b][r][1], bits, lane % 4, c);
            auto of = [&](u32 x) { return r ? twice_upper(x) : twice(x); };
            if constexpr (F == nvfp4) {
                low[b][r] = mul2(c[0][0], of(s.low)), low[b][r + 2] = mul2(c[0][1], of(s.low));
                high[b][r] = mul2(c[1][0], of(s.high)), high[b][r + 2] = mul2(c[1][1], of(s.high));
            } else {
                low[b][r] = fma2(c[0][0], of(s.low), of(s.low_offset));
                low[b][r + 2] = fma2(c[0][1], of(s.low), of(s.low_offset));
                high[b][r] = fma2(c[1][0], of(s.high), of(s.high_offset));
                high[b][r + 2] = fma2(c[1][1], of(s.high), of(s.high_offset));
            }
        }
    }
}
