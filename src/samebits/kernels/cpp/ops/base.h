// What all kernels use: lanes, arithmetic, and rows of 16-bit tensors as float32.
#pragma once
#include "../runtime/op.h"
#include "../simd/simd.h"

namespace samebits::SAMEBITS_ISA {

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// float32 from any float format, n elements; exact.
inline void widen(float* to, const char* from, Format format, int64_t n) {
    if (format == Format::f32) {
        memcpy(to, from, size_t(n) * 4);
        return;
    }
    const uint16_t* half = reinterpret_cast<const uint16_t*>(from);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) store(to + i, format == Format::f16 ? load_f16(half + i) : load_bf16(half + i));
    if (i < n) {
        uint16_t tail[16] = {};
        memcpy(tail, half + i, size_t(n - i) * 2);
        store_partial(to + i, format == Format::f16 ? load_f16(tail) : load_bf16(tail), int(n - i));
    }
}

// Settled float32 to any float format, to nearest even; what float16 rounds to zero is +0.
inline void narrow(char* to, const float* from, Format format, int64_t n) {
    if (format == Format::f32) {
        memcpy(to, from, size_t(n) * 4);
        return;
    }
    uint16_t* half = reinterpret_cast<uint16_t*>(to);
    for (int64_t i = 0; i < n; i += 16) {
        const int count = int(least(16, n - i));
        uint16_t tail[16];
        uint16_t* lane = count == 16 ? half + i : tail;
        const F x = load_partial(from + i, count);
        if (format == Format::f16) store_f16(lane, settle_f16(x));
        else store_bf16(lane, x);
        if (count < 16) memcpy(half + i, tail, size_t(count) * 2);
    }
}

// Whether a stored 16-bit number is one that products allow: finite, and up to 2^63 in bfloat16.
INLINE bool is_operand(uint16_t u, Format format) {
    return format == Format::f16 ? (u & 0x7C00) != 0x7C00 : (u & 0x7FFF) <= 0x5F00;
}

// A row as float32: where it lies if it is float32 already, else widened into `room`.
INLINE const float* read_row(const Tensor& t, int64_t i, float* room) {
    const char* row = t.row(i);
    if (t.format == Format::f32) return reinterpret_cast<const float*>(row);
    widen(room, row, t.format, t.width());
    return room;
}

// Where to write a row as float32; `finish_row` then rounds it to its place if it was the room.
INLINE float* write_row(const Tensor& t, int64_t i, float* room) {
    return t.format == Format::f32 ? reinterpret_cast<float*>(t.row(i)) : room;
}
INLINE void finish_row(const Tensor& t, int64_t i, const float* room) {
    if (t.format != Format::f32) narrow(t.row(i), room, t.format, t.width());
}

}  // namespace samebits::SAMEBITS_ISA
