// The portable term of a block of 32 by int8 matrix instructions; docs/numerics.md, section 4, has the formulas.
//
// Codes are scaled by 2^SHIFT where that saves taking an offset off them, and with them all terms and sums, none of which
// comes near the largest float: a result is 2^-SHIFT times its sum.
#pragma once
#include "formats.cuh"
#include "int8_blocks.cuh"

__host__ __device__ constexpr int shift_of(int f) { return f == q4_0 ? 4 : f == q5_0 ? 3 : f == q6_k ? 2 : 0; }

template <int F>
struct Shared {  // what the blocks of a chunk have in common, of rows g and g + 8
    float d[2], m[2];
    u32 signs;  // 0x80808080: as a constant it would be loaded anew for each use
};

template <int F>
struct Operand {  // a block of 32 of rows g and g + 8: codes in the order of the instruction, and its scales
    u32 a[4];
    float d[2], m[2], sub[2], msub[2];
};

__device__ __forceinline__ float from_e4m3(u32 byte) {
    return __fmul_rn(from_half((u16)((byte & 0x7F) << 7 | (byte & 0x80) << 8)), 256.0f);
}

// Four-bit codes of an even table entry pair: the low and the high nibbles of a word as int8, looked up in 16 bytes.
__device__ __forceinline__ void look_up(u32 w, u32 t0, u32 t1, u32 t2, u32 t3, u32& low, u32& high) {
    u32 code = w & 0x77777777, choice = (w >> 1 & 0x44444444) | 0x32103210;
    u32 even = __byte_perm(__byte_perm(t0, t1, code), __byte_perm(t2, t3, code), choice);
    code >>= 16, choice >>= 16;
    u32 odd = __byte_perm(__byte_perm(t0, t1, code), __byte_perm(t2, t3, code), choice);
    low = __byte_perm(even, odd, 0x6420), high = __byte_perm(even, odd, 0x7531);
}

// Elements 4t .. and 16 + 4t .. of a block as int8 times 2^SHIFT.
template <int F>
__device__ __forceinline__ void code_words(u32 w, u32 w_next, uint2 high, u32 t, u32 signs, u32& first, u32& second) {
    if constexpr (F == q4_0) {
        first = (w << 4 & 0xF0F0F0F0) ^ signs, second = (w & 0xF0F0F0F0) ^ signs;
    } else if constexpr (F == q8_0) {
        first = w, second = w_next;
    } else if constexpr (F == q5_0) {
        u32 bits = high.x >> t;
        first = (w << 3 & 0x78787878) | (~(bits << 7) & 0x80808080);
        second = (w >> 1 & 0x78787878) | (~(bits << 3) & 0x80808080);
    } else if constexpr (F == q5_1 || F == q5_k) {
        u32 bits = high.x >> t;
        first = (w & 0x0F0F0F0F) | (bits << 4 & 0x10101010);
        second = (w >> 4 & 0x0F0F0F0F) | (bits & 0x10101010);
    } else if constexpr (F == q6_k) {
        u32 low_bits = high.x >> (2 * t), high_bits = high.y >> (2 * t);
        first = (w << 2 & 0x3C3C3C3C) | ((low_bits << 6 & 0xC0C0C0C0) ^ signs);
        second = (w >> 2 & 0x3C3C3C3C) | ((high_bits << 6 & 0xC0C0C0C0) ^ signs);
    } else if constexpr (F == nvfp4 || F == mxfp4) {
        // twice E2M1: 0 1 2 3 4 6 8 12 and the negatives
        look_up(w, 0x03020100, 0x0C080604, 0xFDFEFF00, 0xF4F8FAFC, first, second);
    } else {
        first = w & 0x0F0F0F0F, second = w >> 4 & 0x0F0F0F0F;
    }
}

template <int F, int BLOCKS>
__device__ __forceinline__ Shared<F> shared_scales(const u8* stage, int chunk, u32 lane, float scale, u32 signs) {
    using S = TileStage<F, BLOCKS>;
    Shared<F> s;
    s.signs = signs;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        s.d[r] = s.m[r] = scale;
        const u32 entry = chunk * 16 + lane / 4 + 8 * r;
        if constexpr (is_super(F)) s.d[r] = from_half(read_shared<u16>(stage + S::d + entry * 2));
        if constexpr (has_sub_offset(F)) s.m[r] = -from_half(read_shared<u16>(stage + S::m + entry * 2));
    }
    return s;
}

template <int F, int BLOCKS>
__device__ __forceinline__ Operand<F> operand(const u8* stage, int block, u32 lane, const Shared<F>& shared) {
    using S = TileStage<F, BLOCKS>;
    const Words words = stored_words<F, BLOCKS>(stage, block, lane);
    Operand<F> x;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const u32 row = lane / 4 + 8 * r, entry = block * 16 + row;
        uint2 bits = make_uint2(0, 0);
        if constexpr (F == q6_k) bits = read_shared<uint2>(stage + S::high + entry * 8);
        if constexpr (has_fifth_bits(F)) bits.x = read_shared<u32>(stage + S::high + entry * 4);
        code_words<F>(words.w[r][0], words.w[r][1], bits, lane % 4, shared.signs, x.a[r], x.a[r + 2]);
        x.d[r] = shared.d[r], x.m[r] = shared.m[r], x.sub[r] = x.msub[r] = 0.0f;
        if constexpr (F == nvfp4) {
            u32 pair = read_shared<u16>(stage + S::sub + entry * 2);
            x.sub[r] = from_e4m3(pair & 0xFF), x.msub[r] = from_e4m3(pair >> 8);
        } else if constexpr (F == q6_k) {
            int pair = (short)read_shared<u16>(stage + S::sub + entry * 2);
            x.sub[r] = (float)(signed char)pair, x.msub[r] = (float)(pair >> 8);
        } else if constexpr (has_sub_offset(F)) {
            x.sub[r] = (float)read_shared<u8>(stage + S::sub + entry);
            x.msub[r] = (float)read_shared<u8>(stage + S::msub + entry);
        } else if constexpr (F == mxfp4) {
            x.d[r] = __uint_as_float((u32)read_shared<u8>(stage + S::d + entry) << 23);
        } else {
            x.d[r] = from_half(read_shared<u16>(stage + S::d + entry * 2));
            if constexpr (has_offset(F)) x.m[r] = from_half(read_shared<u16>(stage + S::m + entry * 2));
        }
    }
    return x;
}

// Adds the block's terms of rows g (first two) and g + 8, tokens 2t and 2t + 1. Integer sums start at 0 and
// are converted: with a start at the bits of a float, which needs no conversion, all this takes 27 cycles in place of 23.
// Fused: rounded less, for the fast tier.
template <int F, bool Fused>
__device__ __forceinline__ void add_terms(float (&sums)[4], const Operand<F>& w, uint2 x, uint2 sa, uint2 asum) {
    int s[4], h[4];
    if constexpr (has_halves(F)) {
        asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
            : "=r"(s[0]), "=r"(s[1]), "=r"(s[2]), "=r"(s[3])
            : "r"(w.a[0]), "r"(w.a[1]), "r"(x.x), "r"(0));
        asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
            : "=r"(h[0]), "=r"(h[1]), "=r"(h[2]), "=r"(h[3])
            : "r"(w.a[2]), "r"(w.a[3]), "r"(x.y), "r"(0));
    } else {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%10,%10,%10,%10};"
            : "=r"(s[0]), "=r"(s[1]), "=r"(s[2]), "=r"(s[3])
            : "r"(w.a[0]), "r"(w.a[1]), "r"(w.a[2]), "r"(w.a[3]), "r"(x.x), "r"(x.y), "r"(0));
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = i / 2;
        const float by = __uint_as_float(i % 2 ? sa.y : sa.x), codes = __uint_as_float(i % 2 ? asum.y : asum.x);
        float isum = (float)s[i], term;
        // The products are exact, so fma rounds as their sum does.
        if constexpr (has_halves(F)) isum = __fmaf_rn((float)h[i], w.msub[r], __fmul_rn(isum, w.sub[r]));
        if constexpr (Fused) {
            float d = w.d[r], m = w.m[r];
            if constexpr (has_sub_offset(F)) d *= w.sub[r], m *= w.msub[r];
            if constexpr (has_offset(F) || has_sub_offset(F)) sums[i] = fmaf(codes * by, m, sums[i]);
            sums[i] = fmaf(isum, d * by, sums[i]);
            continue;
        }
        if constexpr (has_sub_offset(F)) {
            term = __fadd_rn(__fmul_rn(__fmul_rn(isum, w.sub[r]), __fmul_rn(w.d[r], by)),
                             __fmul_rn(__fmul_rn(codes, w.msub[r]), __fmul_rn(w.m[r], by)));
        } else if constexpr (has_offset(F)) {
            term = __fadd_rn(__fmul_rn(isum, __fmul_rn(w.d[r], by)), __fmul_rn(codes, __fmul_rn(w.m[r], by)));
        } else {
            term = __fmul_rn(isum, __fmul_rn(w.d[r], by));
        }
        sums[i] = __fadd_rn(sums[i], term);
    }
}
