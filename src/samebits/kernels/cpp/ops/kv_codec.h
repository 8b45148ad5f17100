// How keys and values go into a cache in each format (ops/kv_codec.py), and float16 scales one at a time.
#pragma once
#include "../runtime/page.h"
#include "quantize.h"

namespace samebits::SAMEBITS_ISA {

constexpr float kLargestBf16 = 0x1p63f;
constexpr int kBlockQ4Bytes = 18;

INLINE float half_value(const char* p) {
    uint16_t half[16] = {};
    memcpy(half, p, 2);
    return first(load_f16(half));
}

// Writes float16(x); whether that is finite.
INLINE bool store_scale(char* to, float x) {
    uint16_t half[16];
    store_f16(half, settle_f16(set(x)));
    memcpy(to, half, 2);
    return (half[0] & 0x7C00) != 0x7C00;
}

// x rounded to integers, half to even, for |x| < 2^22.
INLINE I nearest_int(F x) { return bits(x + set(kRoundMagic)) - set(kRoundMagicBits); }

// 1 .. 16 blocks; false for values beyond the range of a block or of its scale.
INLINE bool encode_q8_0(const float* x, int64_t num_blocks, char* row) {
    int8_t codes[16 * kBlock];
    float scales[16];
    bool held = quantize_blocks(x, num_blocks, codes, scales);
    for (int64_t b = 0; b < num_blocks; b++, row += kBlockQ8Bytes) {
        held &= store_scale(row, scales[b]);
        memcpy(row + 2, codes + b * kBlock, kBlock);
    }
    return held;
}

// One block, likewise.
INLINE bool encode_q4_0(const float* x, char* block) {
    float extreme = 0;  // the first element of largest magnitude
    bool in_range = true;
    for (int i = 0; i < 32; i++) {
        if (__builtin_fabsf(x[i]) > __builtin_fabsf(extreme)) extreme = x[i];
        in_range &= __builtin_fabsf(x[i]) <= kLargestAmax;
    }
    const float amax = __builtin_fabsf(extreme);
    const bool alive = amax >= kSmallestAmax;
    const F to_code = set(alive ? __builtin_copysignf(8.0f * recip(amax), -extreme) : 0.0f);
    int8_t codes[32];
    for (int half = 0; half < 32; half += 16) {
        const F code = min(round_to_int(load(x + half) * to_code) + set(8.0f), set(15.0f));
        store_i8(codes + half, nearest_int(code));
    }
    for (int j = 0; j < 16; j++) block[2 + j] = char(codes[j] | (codes[j + 16] << 4));
    return store_scale(block, alive ? extreme * -0.125f : 0.0f) && in_range;
}

INLINE F round_to(F x, Format format) {
    return format == Format::f16 ? round_f16(x) : format == Format::bf16 ? round_bf16(x) : x;
}

// A rounded operand of a product; lanes beyond the type's range go into `wrong`.
INLINE F operand(F x, Format format, M& wrong) {
    wrong = wrong | ~(abs(x) <= set(format == Format::bf16 ? kLargestBf16 : __FLT_MAX__));
    return x;
}

INLINE bool encode_blocks(const float* x, int64_t n, Format format, char* row) {
    constexpr int64_t kMost = 16 * kBlock;
    bool held = true;
    for (int64_t start = 0; start < n; start += kMost) {
        const int64_t count = least(kMost, n - start), num_blocks = round_up(count, kBlock) / kBlock;
        float padded[kMost];
        memcpy(padded, x + start, size_t(count) * 4);
        memset(padded + count, 0, size_t(num_blocks * kBlock - count) * 4);
        if (format == Format::q8_0) held &= encode_q8_0(padded, num_blocks, row);
        for (int64_t b = 0; format == Format::q4_0 && b < num_blocks; b++)
            held &= encode_q4_0(padded + b * kBlock, row + b * kBlockQ4Bytes);
        row += num_blocks * (format == Format::q8_0 ? kBlockQ8Bytes : kBlockQ4Bytes);
    }
    return held;
}

// A row of n floats as the cache stores it, the last block filled up with zeros; false for values it cannot hold.
inline bool encode_row(const float* x, int64_t n, Format format, char* row) {
    if (format == Format::q8_0 || format == Format::q4_0) return encode_blocks(x, n, format, row);
    M wrong = first_lanes(0);
    for (int64_t i = 0; i < n; i += 16) {
        const int count = int(least(16, n - i));
        float rounded[16];
        store(rounded, operand(round_to(load_partial(x + i, count), format), format, wrong));
        narrow(row + i * (format == Format::f32 ? 4 : 2), rounded, format, count);
    }
    return !any(wrong);
}

}  // namespace samebits::SAMEBITS_ISA
