// Every function of the vector interface and of the elementary functions, on edges and on numbers of all sizes.
#pragma once
#include "data.h"
#include "ops/activation.h"
#include "ops/sums.h"
#include "ops/weights.h"

namespace samebits::SAMEBITS_ISA {

constexpr int kVectors = 64;

constexpr float kEdges[] = {
    0.0f, -0.0f, 0x1p-149f, -0x1p-149f, 0x1.fffffcp-127f, 0x1p-126f, 0x1.fffffep127f, -0x1.fffffep127f, kInfinity,
    -kInfinity, 1.0f, -1.0f, 0.5f, 0.625f, -0.625f, 5.5f, -87.0f, -87.5f, 88.0f, 88.5f, 2147483520.0f,
    // halfway between two numbers of 16 bits, and next to it
    0x1.002p0f, 0x1.006p0f, -0x1.002p0f, 0x1.002002p0f, 0x1.001ffep0f, 0x1.01p0f, 0x1.03p0f, 0x1.010002p0f,
    0x1.00fffep0f,
    // around the largest, the smallest normal and the smallest of float16 and bfloat16
    65504.0f, 65519.996f, 65520.0f, -65520.0f, 0x1p-14f, 0x1.ffcp-15f, 0x1.ff8p-15f, 0x1.ffap-15f, 0x1p-24f, 0x1p-25f,
    0x1.000002p-25f, 0x1.8p-24f, 0x1.4p-23f, -0x1p-25f, 0x1.feffffp127f, 0x1.ff7p127f, 0x1.ff8p127f, 0x1p-133f,
    0x1p-134f, 0x1.8p-133f,
};

struct Inputs {
    float any[kVectors * 16];     // every exponent, infinities, denormals
    float normal[kVectors * 16];  // 2^-40 .. 2^40, both signs
    float small[kVectors * 16];   // -100 .. 100
    float exact[kVectors * 16];   // float16 numbers of middle size: products are exact
    int32_t ints[kVectors * 16];
    uint8_t bytes[kVectors * 64];

    const char* chars() const { return reinterpret_cast<const char*>(bytes); }
    Inputs() {
        Numbers numbers("primitives");
        for (int i = 0; i < kVectors * 16; i++) {
            const uint32_t word = numbers.word(), finite = (word & 0x7F800000) == 0x7F800000 ? word ^ 0x40000000 : word;
            memcpy(&any[i], &finite, 4);
            const uint32_t middle = (word & 0x807FFFFF) | uint32_t(numbers.between(87, 167)) << 23;
            memcpy(&normal[i], &middle, 4);
            small[i] = numbers.real(-100, 100);
            exact[i] = float(numbers.between(-2047, 2047)) * 0x1p-8f;
            ints[i] = int32_t(numbers.word());
        }
        for (size_t i = 0; i < sizeof kEdges / 4; i++) any[i] = small[i] = kEdges[i];
        const int32_t ends[] = {0, 1, -1, INT32_MAX, INT32_MIN, 0x7FFF, 0x8000, 0xFFFF, 127, -128, 255, (1 << 24) + 1};
        memcpy(ints, ends, sizeof ends);
        for (int i = 0; i < kVectors * 64; i++) bytes[i] = uint8_t(numbers.word());
        for (int i = 0; i < 256; i++) bytes[i] = uint8_t(i);
    }
};

inline void add(Hash& hash, F x) {
    float lane[16];
    store(lane, x);
    for (float v : lane) hash.real(v);
}
inline void add(Hash& hash, I x) {
    int32_t lane[16];
    store(lane, x);
    hash.bytes(lane, sizeof lane);
}
inline void add(Hash& hash, M m) { add(hash, select(m, set(1), set(0))); }
inline void add(Hash& hash, float x) { hash.real(x); }
inline void add(Hash& hash, bool x) { hash.bytes(&x, 1); }
// Bytes have no store of their own; the dot product with one 1 at a time reads them, 7 bits and the top one apart.
inline void add(Hash& hash, B x) {
    for (int j = 0; j < 4; j++) {
        const int32_t one = int32_t(1u << (8 * j));
        add(hash, dot_small(set(0), x & set_bytes(127), one));
        add(hash, dot_small(set(0), byte_shift_right<7>(x) & set_bytes(1), one));
    }
}

// Hashes what `compute` gives for each pair of vectors of `data`.
template <class T, class Fn>
void pairs(const char* name, const T* data, Fn compute) {
    Hash hash;
    for (int i = 0; i < kVectors; i++) {
        const int others[] = {i, (i * 7 + 3) % kVectors, kVectors - 1 - i};
        for (int j : others) add(hash, compute(load(data + 16 * i), load(data + 16 * j)));
    }
    report(SAMEBITS_NAME(SAMEBITS_ISA), name, hash);
}

// Hashes what `compute(hash, i)` adds for each i below `count`.
template <class Fn>
void each(const char* name, int count, Fn compute) {
    Hash hash;
    for (int i = 0; i < count; i++) compute(hash, i);
    report(SAMEBITS_NAME(SAMEBITS_ISA), name, hash);
}

inline void check_floats(const Inputs& in) {
    pairs("add", in.any, [](F a, F b) { return a + b; });
    pairs("subtract", in.any, [](F a, F b) { return a - b; });
    pairs("multiply", in.any, [](F a, F b) { return a * b; });
    pairs("multiply-add", in.normal, [](F a, F b) { return a * b + a; });  // two roundings: no contraction
    pairs("fma_exact", in.exact, [](F a, F b) { return fma_exact(a, b, a * set(0x1.000002p-3f)); });
    pairs("abs", in.any, [](F a, F) { return abs(a); });
    pairs("max", in.any, [](F a, F b) { return max(a, b); });
    pairs("min", in.any, [](F a, F b) { return min(a, b); });
    pairs("max-nan", in.any, [](F a, F b) { return max(a - a, b); });
    pairs("reduce_max", in.normal, [](F a, F b) { return reduce_max(a + b); });
    pairs("chain", in.normal, [](F a, F b) { return chain(a + b); });
    pairs("swap_pairs", in.any, [](F a, F) { return swap_pairs(a); });
    pairs("first", in.any, [](F a, F) { return first(a); });
    pairs("less", in.any, [](F a, F b) { return a < b; });
    pairs("greater", in.any, [](F a, F b) { return a > b; });
    pairs("less-equal", in.any, [](F a, F b) { return a <= b; });
    pairs("greater-equal", in.any, [](F a, F b) { return a >= b; });
    pairs("equal", in.any, [](F a, F b) { return a == b; });
    pairs("not-equal", in.any, [](F a, F b) { return a != b; });
    pairs("equal-nan", in.any, [](F a, F b) { return a - a == b; });  // Inf - Inf
    pairs("not-equal-nan", in.any, [](F a, F b) { return a - a != b; });
    pairs("less-nan", in.any, [](F a, F b) { return (a - a < b) | (a - a >= b); });
    pairs("select", in.any, [](F a, F b) { return select(a < b, a, b); });
    pairs("select-int", in.any, [](F a, F b) { return select(a < b, bits(a), set(-1)); });
    pairs("mask", in.any, [](F a, F b) { return ~(a < b) & ((a > zero()) | (b > zero())); });
    each("any", 17, [](Hash& hash, int n) { add(hash, any(first_lanes(n) & ~first_lanes(n ? n - 1 : 0))); });
    each("all", 17, [](Hash& hash, int n) { add(hash, all(~(first_lanes(n) & ~first_lanes(n ? n - 1 : 0)))); });
}

inline void check_ints(const Inputs& in) {
    pairs("int-add", in.ints, [](I a, I b) { return a + b; });
    pairs("int-subtract", in.ints, [](I a, I b) { return a - b; });
    pairs("int-multiply", in.ints, [](I a, I b) { return a * b; });
    pairs("int-and", in.ints, [](I a, I b) { return a & b; });
    pairs("int-or", in.ints, [](I a, I b) { return a | b; });
    pairs("int-xor", in.ints, [](I a, I b) { return a ^ b; });
    pairs("shift_left", in.ints, [](I a, I b) { return shift_left<23>(a) ^ shift_left<1>(b); });
    pairs("shift_right", in.ints, [](I a, I b) { return shift_right<23>(a) ^ shift_right<1>(b); });
    pairs("shift_right_unsigned", in.ints, [](I a, I b) {
        return shift_right_unsigned<16>(a) ^ shift_right_unsigned<1>(b);
    });
    pairs("to_float", in.ints, [](I a, I) { return to_float(a); });
    pairs("bits", in.any, [](F a, F b) { return from_bits(bits(a) & bits(b)); });
}

inline void check_memory(const Inputs& in) {
    each("first_lanes", 17, [](Hash& hash, int n) { add(hash, first_lanes(n)); });
    each("load_partial", 17, [&](Hash& hash, int n) { add(hash, load_partial(in.any + 5 * n, n)); });
    each("store_partial", 17, [&](Hash& hash, int n) {
        float room[18] = {};
        store_partial(room + 1, load(in.any + 7 * n), n);
        for (float v : room) hash.real(v);
    });
    each("store_u16", kVectors, [&](Hash& hash, int i) {
        uint16_t lane[16];
        store_u16(lane, load(in.ints + 16 * i));
        hash.bytes(lane, sizeof lane);
    });
    each("store_i8", kVectors, [&](Hash& hash, int i) {
        int8_t lane[16];
        store_i8(lane, load(in.ints + 16 * i));
        hash.bytes(lane, sizeof lane);
    });
    const int8_t* codes = reinterpret_cast<const int8_t*>(in.bytes);
    each("load_i8", kVectors, [&](Hash& hash, int i) { add(hash, load_i8(codes + 16 * i)); });
    each("load_u8", kVectors, [&](Hash& hash, int i) { add(hash, load_u8(in.bytes + 16 * i)); });
}

inline void check_halves(const Inputs& in) {
    pairs("round_f16", in.any, [](F a, F) { return round_f16(a); });
    pairs("round_f16-small", in.small, [](F a, F b) { return round_f16(a * b); });
    pairs("round_bf16", in.any, [](F a, F) { return round_bf16(a); });
    each("load_f16", 65536 / 16, [](Hash& hash, int i) {
        uint16_t lane[16];
        for (int j = 0; j < 16; j++) lane[j] = uint16_t(16 * i + j);
        add(hash, load_f16(lane));
    });
    each("settle-bf16", 65536 / 16, [](Hash& hash, int i) {  // every exponent, and both signs
        uint16_t lane[16];
        for (int j = 0; j < 16; j++) lane[j] = uint16_t(16 * i + j);
        add(hash, settle(load_bf16(lane)));
        add(hash, settle_f16(load_bf16(lane)));
    });
    pairs("settle", in.any, [](F a, F) { return settle(a); });
    pairs("settle-small", in.small, [](F a, F b) { return settle(a * b); });
    each("gather_f16", kVectors, [&](Hash& hash, int i) { add(hash, gather_f16(in.chars() + i, 34)); });
    const Format formats[] = {Format::f16, Format::bf16};
    for (const Format format : formats)
        each(format == Format::f16 ? "widen-narrow-f16" : "widen-narrow-bf16", 40, [&](Hash& hash, int n) {
            uint16_t half[40];
            float wide[40];
            narrow(reinterpret_cast<char*>(half), in.any + n, format, n);
            for (int i = 0; i < n; i++) hash.half(half[i]);
            widen(wide, reinterpret_cast<const char*>(half), format, n);
            for (int i = 0; i < n; i++) hash.real(wide[i]);
        });
}

inline void check_bytes(const Inputs& in) {
    const auto weight = [&](int i) { return load_bytes(in.bytes + 64 * i); };
    each("load_bytes", kVectors, [&](Hash& hash, int i) { add(hash, weight(i)); });
    const B low = set_bytes(15);
    each("byte-and-or", kVectors, [&](Hash& hash, int i) { add(hash, (weight(i) & weight(i * 7 % kVectors)) | weight(63 - i)); });
    each("byte_shift_left", kVectors, [&](Hash& hash, int i) { add(hash, byte_shift_left<4>(weight(i) & low)); });
    each("byte_shift_right", kVectors, [&](Hash& hash, int i) { add(hash, byte_shift_right<4>(weight(i)) & low); });
    const int8_t table[16] = {-128, 127, 0, 1, -1, 2, -2, 3, 4, 6, 8, 12, -4, -6, -8, -12};
    each("lookup16", kVectors, [&](Hash& hash, int i) { add(hash, lookup16(table, weight(i) & low)); });
    each("dot_small", kVectors, [&](Hash& hash, int i) {
        int32_t x;  // all bytes of activations, -128 among them
        memcpy(&x, in.bytes + 256 - 4 * (i + 1), 4);
        add(hash, dot_small(shift_right<8>(load(in.ints + 16 * i)), weight(i) & set_bytes(127), x));
    });
    const auto four_of = [&](int i, int& total) {  // activations, of which none is -128, and their sum
        int8_t four[4];
        total = 0;
        for (int j = 0; j < 4; j++) {
            four[j] = int8_t(in.bytes[4 * i + j]);
            if (i == 0) four[j] = j & 1 ? -127 : 127;
            if (four[j] == -128) four[j] = -127;
            total += four[j];
        }
        int32_t x;
        memcpy(&x, four, 4);
        return x;
    };
    each("dot_8bit", kVectors, [&](Hash& hash, int i) {
        int total;
        const int32_t x = four_of(i, total);
        add(hash, dot_8bit(shift_right<8>(load(in.ints + 16 * i)), weight(i), x) - set(kBias8 * total));
    });
    int8_t biased[16];
    for (int i = 0; i < 16; i++) biased[i] = int8_t(Levels::level[i] + kBias8);
    each("dot_biased", kVectors, [&](Hash& hash, int i) {
        int total;
        const int32_t x = four_of(i, total);
        const B w = lookup16(biased, weight(i) & low);
        add(hash, dot_biased(shift_right<8>(load(in.ints + 16 * i)), w, x) - set(kBias8 * total));
    });
}

inline void check_elementary(const Inputs& in) {
    const auto positive = [](F x) { return abs(x) + set(0x1p-60f); };
    pairs("exp", in.small, [](F a, F) { return exp(a); });
    pairs("recip", in.normal, [](F a, F) { return recip(a); });
    pairs("rsqrt", in.normal, [&](F a, F) { return rsqrt(positive(a)); });
    pairs("log", in.normal, [&](F a, F) { return log(positive(a)); });
    pairs("log2", in.normal, [&](F a, F) { return log2(positive(a)); });
    pairs("log-zero", in.normal, [](F, F) { return log(zero()) + log2(zero()); });
    pairs("sigmoid", in.small, [](F a, F) { return sigmoid(a); });
    pairs("softplus", in.small, [](F a, F) { return softplus(a); });
    pairs("tanh", in.small, [](F a, F) { return tanh(a * set(0.01f)); });
    pairs("erfc", in.small, [](F a, F) { return erfc(a * set(0.1f)); });
    pairs("copy_sign", in.any, [](F a, F b) { return copy_sign(a, b); });
    pairs("round_to_int", in.small, [](F a, F) { return round_to_int(a); });
    const auto gated = [&](const char* name, auto act) {  // several vectors at a time, and what is left of a row
        each(name, 200, [&](Hash& hash, int n) {
            float y[200];
            gate_row(act, in.small + n, in.normal + 2 * n, y, n);
            for (int i = 0; i < n; i++) hash.real(y[i]);
        });
    };
    gated("silu-row", SiluMul{});
    gated("gelu-tanh-row", GeluTanhMul{});
    gated("gelu-erf-row", GeluErfMul{});
    gated("clamped-row", ClampedMul(1.7f, 7.0f));
    each("row_chains", 48, [&](Hash& hash, int i) { add(hash, row_chains(in.normal + 16 * i)); });
    each("row_sum", 600, [&](Hash& hash, int n) {
        hash.real(row_sum(n, [&](int64_t i, int count) { return load_partial(in.normal + i, count); }));
    });
}

inline void check_primitives() {
    const Inputs in;
    check_floats(in);
    check_ints(in);
    check_memory(in);
    check_halves(in);
    check_bytes(in);
    check_elementary(in);
}

}  // namespace samebits::SAMEBITS_ISA
