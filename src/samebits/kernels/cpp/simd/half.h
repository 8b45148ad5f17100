// float16 by bit operations, for paths without an instruction for it.
#pragma once

namespace samebits::SAMEBITS_ISA {

INLINE float bits_to_float(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
INLINE uint32_t float_to_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

INLINE float half_to_float(uint16_t h) {
    const uint32_t sign = uint32_t(h & 0x8000) << 16, rest = h & 0x7FFF;
    if (rest >= 0x7C00) return bits_to_float(sign | 0x7F800000 | ((rest & 0x3FF) << 13));
    if (rest < 0x400) {  // a multiple of 2^-24, exact in float32
        const float magnitude = float(rest) * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return bits_to_float(sign | ((rest << 13) + (uint32_t(127 - 15) << 23)));
}

INLINE uint16_t float_to_half(float x) {  // to nearest even, gradual underflow, overflow to infinity
    const uint32_t u = float_to_bits(x), sign = (u >> 16) & 0x8000, rest = u & 0x7FFFFFFF;
    if (rest > 0x7F800000) return uint16_t(sign | 0x7E00);
    if (rest >= 0x477FF000) return uint16_t(sign | 0x7C00);  // 65520 and more
    if (rest < 0x38800000) {                                 // below 2^-14: adding 0.5 rounds to a multiple of 2^-24
        const float rounded = bits_to_float(rest) + 0.5f;
        return uint16_t(sign | (float_to_bits(rounded) - 0x3F000000));
    }
    const uint32_t odd = (rest >> 13) & 1;
    return uint16_t(sign | ((rest + 0xFFF + odd - (uint32_t(127 - 15) << 23)) >> 13));
}

}  // namespace samebits::SAMEBITS_ISA
