// Values of a block of 32 as float16, in the order of float16 matrix instructions: code times scale plus offset.
//
// A word of codes holds elements e .. e + 3 in its bytes; the pairs (e, e + 2) and (e + 1, e + 3) come out of it with
// masks alone, so that is the order of K here, and activations come in the same.
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

static constexpr u32 H1024 = 0x64006400;  // 1024 + code is code | 0x6400
static constexpr u32 SIXTEENTH = 0x2C002C00;

// Bytes 0 .. 255 as float16 plus 1024: elements (0, 2) and (1, 3).
__device__ __forceinline__ void widen_bytes(u32 word, u32& even, u32& odd) {
    even = __byte_perm(word, 0x64646464, 0x4240);
    odd = __byte_perm(word, 0x64646464, 0x4341);
}

// Codes of a row, exact: [half][even, odd]. w as stored; high: the word or words of high bits.
template <int F>
__device__ __forceinline__ void code_halves(u32 w, u32 w_next, uint2 high, u32 t, u32 (&c)[2][2]) {
    if constexpr (F == q4_0 || F == q4_1 || F == q4_k) {
        constexpr u32 low_zero = F == q4_0 ? 0x64086408 : H1024;     // 1024 + 8
        constexpr u32 high_zero = F == q4_0 ? 0xD480D480 : 0xD400D400;  // -(64 + 8), -64
        u32 odd = w >> 8;
        c[0][0] = sub2(pick(w, 0x000F000F, H1024), low_zero);
        c[0][1] = sub2(pick(odd, 0x000F000F, H1024), low_zero);
        c[1][0] = fma2(pick(w, 0x00F000F0, H1024), SIXTEENTH, high_zero);
        c[1][1] = fma2(pick(odd, 0x00F000F0, H1024), SIXTEENTH, high_zero);
    } else if constexpr (F == q8_0) {
        widen_bytes(w ^ 0x80808080, c[0][0], c[0][1]);
        widen_bytes(w_next ^ 0x80808080, c[1][0], c[1][1]);
        for (int i = 0; i < 4; i++) c[i / 2][i % 2] = sub2(c[i / 2][i % 2], 0x64806480);  // 1024 + 128
    } else if constexpr (F == nvfp4) {
        // E2M1 as float16 is its value times 2^-14
        constexpr u32 sign = 0x80008000, rest = 0x0E000E00;
        c[0][0] = pick(w << 12, sign, (w << 9) & rest);
        c[0][1] = pick(w << 4, sign, (w << 1) & rest);
        c[1][0] = pick(w << 8, sign, (w << 5) & rest);
        c[1][1] = pick(w, sign, (w >> 3) & rest);
        for (int i = 0; i < 4; i++) c[i / 2][i % 2] = mul2(c[i / 2][i % 2], 0x74007400);  // 2^14
    } else {
        u32 first, second;
        u32 zero;
        if constexpr (F == q6_k) {
            first = (w & 0x0F0F0F0F) | ((high.x >> (2 * t)) & 0x03030303) << 4;
            second = ((w >> 4) & 0x0F0F0F0F) | ((high.y >> (2 * t)) & 0x03030303) << 4;
            zero = 0x64206420;  // 1024 + 32
        } else {
            u32 bits = high.x >> t;
            first = (w & 0x0F0F0F0F) | (bits & 0x01010101) << 4;
            second = ((w >> 4) & 0x0F0F0F0F) | (bits & 0x10101010);
            zero = F == q5_0 ? 0x64106410 : H1024;
        }
        widen_bytes(first, c[0][0], c[0][1]);
        widen_bytes(second, c[1][0], c[1][1]);
        for (int i = 0; i < 4; i++) c[i / 2][i % 2] = sub2(c[i / 2][i % 2], zero);
    }
}

// The scales of a row's halves and the offset of both, each twice in a word.
template <int F, int BLOCKS>
__device__ __forceinline__ void scale_halves(const u8* stage, int block, u32 row, u32& s0, u32& s1, u32& offset) {
    using S = TileStage<F, BLOCKS>;
    const u32 entry = block * 16 + row, group = (is_super(F) ? block / 8 : block) * 16 + row;
    offset = 0;
    if constexpr (F == nvfp4) {
        // e4m3 as float16 is its value times 2^-8
        u32 pair = __byte_perm(read_shared<u16>(stage + S::sub + entry * 2), 0, 0x4140);
        pair = mul2(pick(pair << 8, 0x80008000, (pair << 7) & 0x3F803F80), 0x5C005C00);
        s0 = twice(pair), s1 = twice_upper(pair);
    } else if constexpr (F == q6_k) {
        u32 pair = read_shared<u16>(stage + S::sub + entry * 2) ^ 0x8080;
        u32 d = twice(read_shared<u16>(stage + S::d + group * 2));
        pair = mul2(sub2(__byte_perm(pair, 0x64646464, 0x4140), 0x64806480), d);
        s0 = twice(pair), s1 = twice_upper(pair);
    } else if constexpr (has_sub_offset(F)) {
        u32 sub = read_shared<u8>(stage + S::sub + entry), msub = read_shared<u8>(stage + S::msub + entry);
        u32 d = read_shared<u16>(stage + S::d + group * 2), m = read_shared<u16>(stage + S::m + group * 2);
        u32 pair = mul2(sub2(sub | msub << 16 | H1024, H1024), __byte_perm(d, m ^ 0x8000, 0x5410));
        s0 = s1 = twice(pair), offset = twice_upper(pair);
    } else {
        s0 = s1 = twice(read_shared<u16>(stage + S::d + group * 2));
        if constexpr (has_offset(F)) offset = twice(read_shared<u16>(stage + S::m + group * 2));
    }
}

// Fragments of the halves of a block: rows g and g + 8 by turns.
template <int F, int BLOCKS>
__device__ __forceinline__ void halves(const u8* stage, int block, u32 lane, u32 (&low)[4], u32 (&high)[4]) {
    using S = TileStage<F, BLOCKS>;
    const Words words = stored_words<F, BLOCKS>(stage, block, lane);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const u32 row = lane / 4 + 8 * r;
        uint2 bits = make_uint2(0, 0);
        if constexpr (F == q6_k) bits = read_shared<uint2>(stage + S::high + (block * 16 + row) * 8);
        if constexpr (has_fifth_bits(F)) bits.x = read_shared<u32>(stage + S::high + (block * 16 + row) * 4);
        u32 c[2][2], s0, s1, offset;
        code_halves<F>(words.w[r][0], words.w[r][1], bits, lane % 4, c);
        scale_halves<F, BLOCKS>(stage, block, row, s0, s1, offset);
        if constexpr (has_offset(F) || has_sub_offset(F)) {
            low[r] = fma2(c[0][0], s0, offset), low[r + 2] = fma2(c[0][1], s0, offset);
            high[r] = fma2(c[1][0], s0, offset), high[r + 2] = fma2(c[1][1], s0, offset);
        } else {
            low[r] = mul2(c[0][0], s0), low[r + 2] = mul2(c[0][1], s0);
            high[r] = mul2(c[1][0], s1), high[r + 2] = mul2(c[1][1], s1);
        }
    }
}
