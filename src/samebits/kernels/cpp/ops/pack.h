// From rows as model files store them (src/samebits/formats) to rows16, and single rows back.
#pragma once
#include "weights.h"

namespace samebits::SAMEBITS_ISA {

inline void read_nibbles(const uint8_t* p, uint8_t* code) {
    for (int j = 0; j < 16; j++) code[j] = p[j] & 15, code[j + 16] = p[j] >> 4;
}
inline void read_five_bits(const uint8_t* p, uint8_t* code) {
    read_nibbles(p + 4, code);
    for (int k = 0; k < 32; k++) code[k] |= uint8_t(((p[k / 8] >> (k % 8)) & 1) << 4);
}
inline int six_bit_scale(const uint8_t* p, int s) { return s < 4 ? p[s] & 63 : (p[s + 4] & 15) | ((p[s - 4] >> 6) << 4); }
inline int six_bit_min(const uint8_t* p, int s) { return s < 4 ? p[s + 4] & 63 : (p[s + 4] >> 4) | ((p[s] >> 6) << 4); }

// How a format's bytes lie in a model file. A span is what shares scales: `bytes` of them; `at` is a block in it.
//   codes(p, at, code)          32 codes as they go into rows16
//   scales(p, at, row, to)      this row's part of the span's scales; called for every block of the span
template <class W>
struct Stored;

template <>
struct Stored<Q4_0> {
    static constexpr int bytes = 18;
    static void codes(const uint8_t* p, int, uint8_t* code) { read_nibbles(p + 2, code); }
    static void scales(const uint8_t* p, int, int row, uint8_t* to) { memcpy(to + 2 * row, p, 2); }
};
template <>
struct Stored<Q4_1> {
    static constexpr int bytes = 20;
    static void codes(const uint8_t* p, int, uint8_t* code) { read_nibbles(p + 4, code); }
    static void scales(const uint8_t* p, int, int row, uint8_t* to) {
        memcpy(to + 2 * row, p, 2);
        memcpy(to + 32 + 2 * row, p + 2, 2);
    }
};
template <>
struct Stored<Q5_0> {
    static constexpr int bytes = 22;
    static void codes(const uint8_t* p, int, uint8_t* code) { read_five_bits(p + 2, code); }
    static void scales(const uint8_t* p, int, int row, uint8_t* to) { memcpy(to + 2 * row, p, 2); }
};
template <>
struct Stored<Q5_1> {
    static constexpr int bytes = 24;
    static void codes(const uint8_t* p, int, uint8_t* code) { read_five_bits(p + 4, code); }
    static void scales(const uint8_t* p, int at, int row, uint8_t* to) { Stored<Q4_1>::scales(p, at, row, to); }
};
template <>
struct Stored<Q8_0> {
    static constexpr int bytes = 34;
    static void codes(const uint8_t* p, int, uint8_t* code) {
        for (int k = 0; k < 32; k++) code[k] = p[2 + k] ^ 0x80;
    }
    static void scales(const uint8_t* p, int, int row, uint8_t* to) { memcpy(to + 2 * row, p, 2); }
};
template <>
struct Stored<Q4_K> {
    static constexpr int bytes = 144;
    static void codes(const uint8_t* p, int at, uint8_t* code) {
        for (int k = 0; k < 32; k++) code[k] = (p[16 + 32 * (at / 2) + k] >> (at % 2 ? 4 : 0)) & 15;
    }
    static void scales(const uint8_t* p, int at, int row, uint8_t* to) {
        Stored<Q4_1>::scales(p, 0, row, to);
        to[64 + 16 * at + row] = uint8_t(six_bit_scale(p + 4, at));
        to[192 + 16 * at + row] = uint8_t(six_bit_min(p + 4, at));
    }
};
template <>
struct Stored<Q5_K> {
    static constexpr int bytes = 176;
    static void codes(const uint8_t* p, int at, uint8_t* code) {
        for (int k = 0; k < 32; k++) {
            const int low = (p[48 + 32 * (at / 2) + k] >> (at % 2 ? 4 : 0)) & 15;
            code[k] = uint8_t(low | (((p[16 + k] >> at) & 1) << 4));
        }
    }
    static void scales(const uint8_t* p, int at, int row, uint8_t* to) { Stored<Q4_K>::scales(p, at, row, to); }
};
template <>
struct Stored<Q6_K> {
    static constexpr int bytes = 210;
    static void codes(const uint8_t* p, int at, uint8_t* code) {
        const int half = at / 4, r = at % 4;
        for (int k = 0; k < 32; k++) {
            const int j = 32 * (r % 2) + k;
            const int low = (p[64 * half + j] >> (r < 2 ? 0 : 4)) & 15;
            const int high = (p[128 + 32 * half + k] >> (2 * r)) & 3;
            code[k] = uint8_t(low | (high << 4));
        }
    }
    static void scales(const uint8_t* p, int at, int row, uint8_t* to) {
        memcpy(to + 2 * row, p + 208, 2);
        for (int h = 0; h < 2; h++) to[32 + 16 * (2 * at + h) + row] = p[192 + 2 * at + h];
    }
};
template <>
struct Stored<Nvfp4> {  // two stored blocks of 16 make a block
    static constexpr int bytes = 18;
    static void codes(const uint8_t* p, int, uint8_t* code) {
        for (int k = 0; k < 32; k++) code[k] = (p[9 * (k / 16) + 1 + k % 16 / 2] >> (k % 2 ? 4 : 0)) & 15;
    }
    static void scales(const uint8_t* p, int, int row, uint8_t* to) {
        for (int h = 0; h < 2; h++) to[16 * h + row] = p[9 * h];
    }
};

template <>
struct Stored<Mxfp4> {
    static constexpr int bytes = 17, smallest = 78;  // scales below that are 0 (src/samebits/formats/mxfp4.py)
    static void codes(const uint8_t* p, int, uint8_t* code) { read_nibbles(p + 1, code); }
    static void scales(const uint8_t* p, int, int row, uint8_t* to) { to[row] = p[0] < smallest ? 0 : uint8_t(p[0] - 1); }
};

template <>
struct Stored<Q2_K> {
    static constexpr int bytes = 84;
    static void codes(const uint8_t* p, int at, uint8_t* code) {
        for (int k = 0; k < 32; k++) code[k] = (p[16 + 32 * (at / 4) + k] >> (2 * (at % 4))) & 3;
    }
    static void scales(const uint8_t* p, int at, int row, uint8_t* to) {
        Stored<Q4_1>::scales(p + 80, 0, row, to);
        for (int h = 0; h < 2; h++) to[64 + 16 * (2 * at + h) + row] = p[2 * at + h];
    }
};
template <>
struct Stored<Q3_K> {
    static constexpr int bytes = 110;
    static void codes(const uint8_t* p, int at, uint8_t* code) {
        Stored<Q2_K>::codes(p + 16, at, code);  // the low bits lie alike, 16 bytes further on
        for (int k = 0; k < 32; k++) code[k] |= uint8_t(((p[k] >> at) & 1) << 2);
    }
    static void scales(const uint8_t* p, int at, int row, uint8_t* to) {
        memcpy(to + 2 * row, p + 108, 2);
        for (int s = 2 * at; s < 2 * at + 2; s++) {
            const int low = (p[96 + s % 8] >> (s < 8 ? 0 : 4)) & 15, high = (p[104 + s % 4] >> (s / 4 * 2)) & 3;
            to[32 + 16 * s + row] = uint8_t((low | (high << 4)) - 32);
        }
    }
};
template <>
struct Stored<Iq4_nl> {
    static constexpr int bytes = 18;
    static void codes(const uint8_t* p, int, uint8_t* code) { read_nibbles(p + 2, code); }
    static void scales(const uint8_t* p, int, int row, uint8_t* to) { memcpy(to + 2 * row, p, 2); }
};
template <>
struct Stored<Iq4_xs> {
    static constexpr int bytes = 136;
    static void codes(const uint8_t* p, int at, uint8_t* code) { read_nibbles(p + 8 + 16 * at, code); }
    static void scales(const uint8_t* p, int at, int row, uint8_t* to) {
        memcpy(to + 2 * row, p, 2);
        const int low = (p[4 + at / 2] >> (at % 2 * 4)) & 15, high = (p[2 + at / 4] >> (at % 4 * 2)) & 3;
        to[32 + 16 * at + row] = uint8_t((low | (high << 4)) - 32);
    }
};

// One group: rows first .. first + 15 of a stored matrix, zeros where there are fewer.
template <class W>
inline void pack_group(const uint8_t* rows, size_t row_stride, int count, int64_t blocks, uint8_t* group) {
    if (count < kGroup) memset(group, 0, W::group_bytes(blocks));
    uint8_t* codes = group + W::scales_bytes(blocks);
    for (int64_t b = 0; b < blocks; b++)
        for (int row = 0; row < count; row++) {
            const uint8_t* p = rows + size_t(row) * row_stride + size_t(b / W::span) * Stored<W>::bytes;
            const int at = int(b % W::span);
            uint8_t code[32];
            Stored<W>::codes(p, at, code);
            Stored<W>::scales(p, at, row, group + b / W::span * W::span_bytes);
            W::put(codes + b * W::code_bytes, row, code);
        }
}

// Plain formats; false where an element is none that products allow.
inline bool pack_plain_group(const char* rows, size_t row_stride, int count, int64_t width, Format format, uint8_t* group) {
    bool allowed = true;
    const size_t size = size_t(plain_bytes(format));
    memset(group, 0, size * kGroup * size_t(width));
    for (int row = 0; row < count; row++)
        for (int64_t k = 0; k < width; k++) {
            const char* from = rows + size_t(row) * row_stride + size_t(k) * size;
            memcpy(group + (size_t(k) * kGroup + size_t(row)) * size, from, size);
            if (format == Format::f32) {
                float x;
                memcpy(&x, from, 4);
                allowed &= x - x == 0.0f;
            } else {
                uint16_t u;
                memcpy(&u, from, 2);
                allowed &= is_operand(u, format);
            }
        }
    return allowed;
}

// A matrix [rows, width], rows row_stride bytes apart, into rows16: groups first .. last - 1 of it.
inline bool pack_groups(const char* from, size_t row_stride, Format format, int64_t rows, int64_t width, int64_t first,
                        int64_t last, uint8_t* to) {
    bool allowed = true;
    const size_t bytes = group_bytes(format, width);
    for (int64_t g = first; g < last; g++) {
        const int count = int(least(kGroup, rows - g * kGroup));
        const char* start = from + size_t(g * kGroup) * row_stride;
        uint8_t* group = to + size_t(g) * bytes;
        if (!is_block(format)) allowed &= pack_plain_group(start, row_stride, count, width, format, group);
        with_block_format(format, [&](auto f) {
            pack_group<decltype(f)>(reinterpret_cast<const uint8_t*>(start), row_stride, count, width / kBlock, group);
        });
    }
    return allowed;
}

}  // namespace samebits::SAMEBITS_ISA
