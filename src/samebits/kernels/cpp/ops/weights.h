// The layout rows16 of a weight [N, K], and what each format stores in it.
//
// 16 rows make a group, the last one padded with zeros. A group is its scales, block after block (rounded up to a
// cache line), then its codes, block after block of 32 k. A register of 64 codes holds 4 consecutive k of 16 rows:
// byte 4 r + k % 4 is row r. Nibbles: register g < 4 holds k = 4 g .. 4 g + 3 low and k + 16 high.
// Plain formats (f32, f16, bf16): element k of all 16 rows, then k + 1.
#pragma once
#include "sums.h"

namespace samebits::SAMEBITS_ISA {

constexpr int kGroup = 16;

// How a block's integer sum becomes a float32 term, docs/numerics.md section 4.
enum class Term {
    scale,          // f(isum) * (d * sa)
    offset,         // ... + f(asum) * (m * sa)
    sub_scale,      // a sub-scale on f(isum)
    super_offset,   // sub-scales on both
    halves,         // two sub-scaled sums of 16
    halves_offset,  // ... + two sub-scaled sums of activations
};
constexpr bool is_halved(Term term) { return term == Term::halves || term == Term::halves_offset; }
constexpr bool has_offset(Term term) {
    return term == Term::offset || term == Term::super_offset || term == Term::halves_offset;
}

// What dot products take the registers of codes for: 0 .. 127, signed bytes xor 0x80, or signed bytes + kBias8.
enum class Operand { small, flipped, biased };

// Codes of a block in its registers: each(codes, f) calls f(g, 64 unsigned codes); put and get are for one row.
struct Nibbles {  // what formats with 4 low bits share
    static constexpr Operand operand = Operand::small;
    template <class Each>
    static INLINE void each(const uint8_t* codes, Each f) {
        const B mask = set_bytes(15);
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            const B both = load_bytes(codes + 64 * g);
            f(g, both & mask);
            f(g + 4, high_nibbles(both));
        }
    }
    static void put(uint8_t* codes, int row, const uint8_t* code) {
        uint8_t both[16];
        for (int j = 0; j < 16; j++) both[j] = uint8_t((code[j] & 15) | (code[j + 16] << 4));
        for (int g = 0; g < 4; g++) memcpy(codes + 64 * g + 4 * row, both + 4 * g, 4);
    }
    static int get(const uint8_t* codes, int row, int k) {
        return (codes[64 * (k % 16 / 4) + 4 * row + k % 4] >> (k < 16 ? 0 : 4)) & 15;
    }
};

struct TwoBits {  // two registers of pairs of bits: register g / 4, bits 2 (g % 4)
    static constexpr Operand operand = Operand::small;
    template <class Each>
    static INLINE void each(const uint8_t* codes, Each f) {
        const B mask = set_bytes(3);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const B four = load_bytes(codes + 64 * h);
            f(4 * h, four & mask);
            f(4 * h + 1, byte_shift_right<2>(four) & mask);
            f(4 * h + 2, byte_shift_right<4>(four) & mask);
            f(4 * h + 3, top_pairs(four));
        }
    }
    static void put(uint8_t* codes, int row, const uint8_t* code) {
        uint8_t pairs[8] = {};
        for (int k = 0; k < 32; k++) pairs[k / 16 * 4 + k % 4] |= uint8_t((code[k] & 3) << (2 * (k / 4 % 4)));
        for (int h = 0; h < 2; h++) memcpy(codes + 64 * h + 4 * row, pairs + 4 * h, 4);
    }
    static int get(const uint8_t* codes, int row, int k) {
        return (codes[64 * (k / 16) + 4 * row + k % 4] >> (2 * (k / 4 % 4))) & 3;
    }
};

// Three registers: bits 0-2 and 3-5 of register i hold k-groups 2 i and 2 i + 1; groups 6 and 7 have their low bits in
// bits 6-7 of registers 0 and 1, their third bits in bits 6 and 7 of register 2.
struct ThreeBits {
    static constexpr Operand operand = Operand::small;
    template <class Each>
    static INLINE void each(const uint8_t* codes, Each f) {
        const B mask = set_bytes(7), third = set_bytes(4);
        const B r0 = load_bytes(codes), r1 = load_bytes(codes + 64), r2 = load_bytes(codes + 128);
        f(0, r0 & mask);
        f(1, byte_shift_right<3>(r0) & mask);
        f(2, r1 & mask);
        f(3, byte_shift_right<3>(r1) & mask);
        f(4, r2 & mask);
        f(5, byte_shift_right<3>(r2) & mask);
        f(6, top_pairs(r0) | (byte_shift_right<4>(r2) & third));
        f(7, top_pairs(r1) | (byte_shift_right<5>(r2) & third));
    }
    static void put(uint8_t* codes, int row, const uint8_t* code) {
        uint8_t byte[3][4] = {};
        for (int k = 0; k < 24; k++) byte[k / 8][k % 4] |= uint8_t(code[k] << (k / 4 % 2 * 3));
        for (int k = 24; k < 32; k++) {
            byte[k / 4 - 6][k % 4] |= uint8_t((code[k] & 3) << 6);
            byte[2][k % 4] |= uint8_t((code[k] >> 2) << (k / 4));
        }
        for (int i = 0; i < 3; i++) memcpy(codes + 64 * i + 4 * row, byte[i], 4);
    }
    static int get(const uint8_t* codes, int row, int k) {
        const uint8_t* p = codes + 4 * row + k % 4;
        if (k < 24) return (p[64 * (k / 8)] >> (k / 4 % 2 * 3)) & 7;
        return (p[64 * (k / 4 - 6)] >> 6) | (((p[128] >> (k / 4)) & 1) << 2);
    }
};

struct FiveBits {  // nibbles, then bit g of byte 4 r + k % 4 is the fifth bit of k = 4 g + k % 4
    static constexpr Operand operand = Operand::small;
    template <class Each>
    static INLINE void each(const uint8_t* codes, Each f) {
        const B fifth = load_bytes(codes + 256), top = set_bytes(16);
        Nibbles::each(codes, [&](int g, B low) __attribute__((always_inline)) {
            B bit = g == 0   ? byte_shift_left<4>(fifth)
                    : g == 1 ? byte_shift_left<3>(fifth)
                    : g == 2 ? byte_shift_left<2>(fifth)
                    : g == 3 ? byte_shift_left<1>(fifth)
                    : g == 4 ? fifth
                    : g == 5 ? byte_shift_right<1>(fifth)
                    : g == 6 ? byte_shift_right<2>(fifth)
                             : byte_shift_right<3>(fifth);
            f(g, low | (bit & top));
        });
    }
    static void put(uint8_t* codes, int row, const uint8_t* code) {
        Nibbles::put(codes, row, code);
        uint8_t fifth[4] = {};
        for (int k = 0; k < 32; k++) fifth[k % 4] |= uint8_t(((code[k] >> 4) & 1) << (k / 4));
        memcpy(codes + 256 + 4 * row, fifth, 4);
    }
    static int get(const uint8_t* codes, int row, int k) {
        return Nibbles::get(codes, row, k) | (((codes[256 + 4 * row + k % 4] >> (k / 4)) & 1) << 4);
    }
};

struct SixBits {  // nibbles, then the pairs of bits above them
    static constexpr Operand operand = Operand::small;
    template <class Each>
    static INLINE void each(const uint8_t* codes, Each f) {
        const B low4 = load_bytes(codes + 256), high4 = load_bytes(codes + 320), top = set_bytes(48);
        Nibbles::each(codes, [&](int g, B low) __attribute__((always_inline)) {
            const B pairs = g < 4 ? low4 : high4;
            const int at = g % 4;
            const B moved = at == 0   ? byte_shift_left<4>(pairs)
                            : at == 1 ? byte_shift_left<2>(pairs)
                            : at == 2 ? pairs
                                      : byte_shift_right<2>(pairs);
            f(g, low | (moved & top));
        });
    }
    static void put(uint8_t* codes, int row, const uint8_t* code) {
        Nibbles::put(codes, row, code);
        uint8_t high[32];
        for (int k = 0; k < 32; k++) high[k] = code[k] >> 4;
        TwoBits::put(codes + 256, row, high);
    }
    static int get(const uint8_t* codes, int row, int k) {
        return Nibbles::get(codes, row, k) | (TwoBits::get(codes + 256, row, k) << 4);
    }
};

struct Bytes {  // signed codes xor 0x80
    static constexpr Operand operand = Operand::flipped;
    template <class Each>
    static INLINE void each(const uint8_t* codes, Each f) {
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) f(g, load_bytes(codes + 64 * g));
    }
    static void put(uint8_t* codes, int row, const uint8_t* code) {
        for (int g = 0; g < 8; g++) memcpy(codes + 64 * g + 4 * row, code + 4 * g, 4);
    }
    static int get(const uint8_t* codes, int row, int k) { return codes[64 * (k / 4) + 4 * row + k % 4]; }
};

struct E2M1 : Nibbles {  // 4-bit floats; a code is twice one, plus 12
    static constexpr int8_t twice_plus_12[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    template <class Each>
    static INLINE void each(const uint8_t* codes, Each f) {
        Nibbles::each(codes, [&](int g, B e) __attribute__((always_inline)) { f(g, lookup16(twice_plus_12, e)); });
    }
    static int get(const uint8_t* codes, int row, int k) { return twice_plus_12[Nibbles::get(codes, row, k)]; }
};

struct Levels : Nibbles {  // sixteen signed bytes (src/samebits/formats/iq4_nl.py); a code is one of them, plus 128
    static constexpr Operand operand = Operand::biased;
    static constexpr int8_t level[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    template <class Each>
    static INLINE void each(const uint8_t* codes, Each f) {
        int8_t biased[16];
        for (int i = 0; i < 16; i++) biased[i] = int8_t(level[i] + kBias8);
        Nibbles::each(codes, [&](int g, B c) __attribute__((always_inline)) { f(g, lookup16(biased, c)); });
    }
    static int get(const uint8_t* codes, int row, int k) { return level[Nibbles::get(codes, row, k)] + 128; }
};

// A format in rows16: bits of a code, its term, what is subtracted from a code, and bytes of a block of 16 x 32.
// `span` blocks share a piece of the scales of span_bytes.
template <class Bits, Term T, int Bias, int CodeBytes, int Span, int SpanBytes>
struct Rows16 : Bits {
    static constexpr Term term = T;
    static constexpr int bias = Bias, code_bytes = CodeBytes, span = Span, span_bytes = SpanBytes;
    static constexpr bool has_exponents = SpanBytes == kGroup;  // a byte per row: scales are powers of two
    static constexpr bool has_e4m3 = T == Term::halves && Span == 1;

    static size_t scales_bytes(int64_t blocks) { return size_t(round_up(blocks / span * span_bytes, 64)); }
    static size_t group_bytes(int64_t blocks) { return scales_bytes(blocks) + size_t(blocks) * code_bytes; }
    static const uint8_t* scales_at(const uint8_t* group, int64_t block) { return group + block / span * span_bytes; }
};

// Scales of one span, in this order: float16 d [16], float16 m [16]; sub-scales a byte each.
struct Q4_0 : Rows16<Nibbles, Term::scale, 8, 256, 1, 32> {};
struct Q4_1 : Rows16<Nibbles, Term::offset, 0, 256, 1, 64> {};
struct Q5_0 : Rows16<FiveBits, Term::scale, 16, 320, 1, 32> {};
struct Q5_1 : Rows16<FiveBits, Term::offset, 0, 320, 1, 64> {};
struct Q8_0 : Rows16<Bytes, Term::scale, 128, 512, 1, 32> {};
struct Q4_K : Rows16<Nibbles, Term::super_offset, 0, 256, 8, 320> {};  // d, dmin, scale [8][16], min [8][16]
struct Q5_K : Rows16<FiveBits, Term::super_offset, 0, 320, 8, 320> {};
struct Q6_K : Rows16<SixBits, Term::halves, 32, 384, 8, 288> {};  // d, int8 scale [16][16]
struct Nvfp4 : Rows16<E2M1, Term::halves, 12, 256, 1, 32> {};     // e4m3 scale [2][16]
struct Mxfp4 : Rows16<E2M1, Term::scale, 12, 256, 1, 16> {};      // exponent of d [16] as float32 has it, 0 for 0
struct Q2_K : Rows16<TwoBits, Term::halves_offset, 0, 128, 8, 320> {};  // d, dmin, scale | min << 4 [16][16]
struct Q3_K : Rows16<ThreeBits, Term::halves, 4, 192, 8, 288> {};       // d, int8 scale [16][16]
struct Iq4_nl : Rows16<Levels, Term::scale, 128, 256, 1, 32> {};
struct Iq4_xs : Rows16<Levels, Term::sub_scale, 128, 256, 8, 160> {};  // d, int8 scale [8][16]

// Calls f with the format's type; nothing for a plain format.
template <class Fn>
INLINE void with_block_format(Format format, Fn f) {
    switch (format) {
        case Format::q4_0: return f(Q4_0{});
        case Format::q4_1: return f(Q4_1{});
        case Format::q5_0: return f(Q5_0{});
        case Format::q5_1: return f(Q5_1{});
        case Format::q8_0: return f(Q8_0{});
        case Format::q4_k: return f(Q4_K{});
        case Format::q5_k: return f(Q5_K{});
        case Format::q6_k: return f(Q6_K{});
        case Format::nvfp4: return f(Nvfp4{});
        case Format::mxfp4: return f(Mxfp4{});
        case Format::q2_k: return f(Q2_K{});
        case Format::q3_k: return f(Q3_K{});
        case Format::iq4_nl: return f(Iq4_nl{});
        case Format::iq4_xs: return f(Iq4_xs{});
        default: return;
    }
}

INLINE bool is_block(Format format) { return format >= Format::q4_0; }
INLINE int64_t plain_bytes(Format format) { return format == Format::f32 ? 4 : 2; }

// Bytes of a group of 16 rows of K elements.
inline size_t group_bytes(Format format, int64_t width) {
    size_t bytes = size_t(plain_bytes(format) * kGroup * width);
    with_block_format(format, [&](auto f) { bytes = decltype(f)::group_bytes(width / kBlock); });
    return bytes;
}
inline size_t rows16_bytes(Format format, int64_t rows, int64_t width) {
    return size_t(round_up(rows, kGroup) / kGroup) * group_bytes(format, width);
}

// e4m3: 4 bits of exponent, 3 of mantissa; exact, denormals included.
INLINE F load_e4m3(const uint8_t* p) {
    const I u = load_u8(p), low = u & set(0x7F);
    const F count = to_float(low), normal = from_bits(shift_left<20>(low) + set(120 << 23));
    const F magnitude = select(count < set(8.0f), count * set(0x1p-9f), normal);
    return from_bits(bits(magnitude) | shift_left<24>(u & set(0x80)));
}
// Powers of two by their exponents in float32; 0 is +0.
INLINE F load_exponents(const uint8_t* p) { return from_bits(shift_left<23>(load_u8(p))); }

}  // namespace samebits::SAMEBITS_ISA
