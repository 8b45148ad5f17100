// The elementary functions of core/numerics/elementary.py, operation by operation, but for the steps that settle a tiny
// square: they do not change a bit. Constants are part of the numerics version; every parenthesis matters. V is F or
// several of them.
#pragma once
#include "../simd/several.h"
#include "base.h"

namespace samebits::SAMEBITS_ISA {

constexpr float kLog2e = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, half to even
constexpr int32_t kRoundMagicBits = 0x4B400000, kSqrtHalfBits = 0x3F3504F3;
constexpr float kExpPoly[] = {0.5f, 0.166665181517601f, 0.04166620597243309f, 0.008368954062461853f, 0.0013950602151453495f};
constexpr float kExpLowest = -34.5f, kExpHighest = 88.0f, kInfinity = __builtin_huge_valf();

template <size_t N, class V>
INLINE V horner(const float (&c)[N], const V& x) {
    V total = set(c[N - 1]) * x + set(c[N - 2]);
#pragma GCC unroll 16
    for (int i = int(N) - 3; i >= 0; i--) total = total * x + set(c[i]);
    return total;
}

INLINE F round_to_int(F x) { return (x + set(kRoundMagic)) - set(kRoundMagic); }

// e^x for x that is no NaN: +0 below -34.5, +inf above 88.
template <class V>
INLINE V exp(const V& x) {
    const V clamped = min(max(x, set(kExpLowest)), set(kExpHighest));
    const V shifted = clamped * set(kLog2e) + set(kRoundMagic);
    const V n = shifted - set(kRoundMagic);
    const V r = (clamped - n * set(kLn2High)) - n * set(kLn2Low);
    const V mantissa = set(1.0f) + (r + (r * r) * horner(kExpPoly, r));
    const auto exponent = bits(shifted) - set(kRoundMagicBits);
    V result = from_bits(bits(mantissa) + shift_left<23>(exponent));
    result = select(x < set(kExpLowest), zero(), result);
    return select(x > set(kExpHighest), set(kInfinity), result);
}

// `exp` for x <= 0 without the steps that only other x need; n * ln 2's high part is exact, and the bits of the magic
// number leave when the exponent is shifted into place. Below -34.5 the lane is +0, whatever the rest computed.
template <class V>
INLINE V exp_not_positive(const V& x) {
    const V shifted = x * set(kLog2e) + set(kRoundMagic);
    const V n = shifted - set(kRoundMagic);
    const V r = fma_exact(n, set(-kLn2High), x) - n * set(kLn2Low);
    const V mantissa = set(1.0f) + (r + (r * r) * horner(kExpPoly, r));
    return select(x < set(kExpLowest), zero(), from_bits(bits(mantissa) + shift_left<23>(bits(shifted))));
}

template <class V>
INLINE V recip(const V& x) {
    V y = from_bits(set(int32_t(0x7EF311C7)) - bits(x));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) y = y + y * (set(1.0f) - x * y);
    return y;
}

INLINE F rsqrt(F x) {
    F y = from_bits(set(int32_t(0x5F3759DF)) - shift_right<1>(bits(x)));
#pragma GCC unroll 4
    for (int i = 0; i < 3; i++) y = y + (set(0.5f) * y) * (set(1.0f) - (x * y) * y);
    return y;
}

INLINE F log1p_poly(F f) {
    constexpr float poly[] = {0.3333333134651184f,  -0.2500081956386566f,  0.20001226663589478f, -0.16623356938362122f,
                              0.14201757311820984f, -0.13160184025764465f, 0.127615824341774f,   -0.07634497433900833f};
    const F f2 = f * f;
    return f - (set(0.5f) * f2 - (f2 * f) * horner(poly, f));
}

INLINE void split_log(F x, F& e, F& f) {  // x = 2^e * (1 + f)
    const I exponent = shift_right<23>(bits(x) - set(kSqrtHalfBits));
    f = from_bits(bits(x) - shift_left<23>(exponent)) - set(1.0f);
    e = to_float(exponent);
}

INLINE F log(F x) {
    F e, f;
    split_log(x, e, f);
    const F result = e * set(kLn2High) + (e * set(kLn2Low) + log1p_poly(f));
    return select(x == zero(), set(-kInfinity), result);
}

INLINE F log2(F x) {
    F e, f;
    split_log(x, e, f);
    const F result = e + log1p_poly(f) * set(kLog2e);
    return select(x == zero(), set(-kInfinity), result);
}

template <class V>
INLINE V sigmoid(const V& x) {
    const V t = exp_not_positive(zero() - abs(x));
    const V r = recip(set(1.0f) + t);
    return select(x < zero(), t * r, r);
}

// log(1 + e^x) = max(x, 0) + log1p(e^-|x|); 1 + t beyond sqrt(2) is halved, exactly.
INLINE F softplus(F x) {
    const F t = exp_not_positive(zero() - abs(x));
    const M near_two = t > set(0.41421356f);
    const F log1p = log1p_poly(select(near_two, set(0.5f) * t - set(0.5f), t));
    return max(x, zero()) + select(near_two, set(kLn2High) + (set(kLn2Low) + log1p), log1p);
}

INLINE F copy_sign(F magnitude, F sign) {
    const I top = set(int32_t(0x80000000));
    return from_bits((bits(magnitude) & set(0x7FFFFFFF)) | (bits(sign) & top));
}

INLINE F tanh(F x) {
    constexpr float poly[] = {-0.3333328366279602f, 0.13331490755081177f, -0.05374349653720856f, 0.020650584250688553f,
                              -0.005717042367905378f};
    const F z = min(max(x, set(-0.625f)), set(0.625f));
    const F z2 = z * z;
    const F small = z + (z * z2) * horner(poly, z2);
    const F t = exp(set(-2.0f) * abs(x));
    const F large = copy_sign((set(1.0f) - t) * recip(set(1.0f) + t), x);
    return select(x != x, x, select(abs(x) < set(0.625f), small, large));  // a NaN stays one: `exp` would hide it
}

template <class V>
INLINE V erfc(const V& x) {  // for x that is no NaN
    constexpr float centre[] = {1.1283791065216064f,   -0.3761262595653534f,    0.11283600330352783f,  -0.026854444295167923f,
                                0.005189535673707724f, -0.0008020842215046287f, 7.889122935011983e-05f};
    constexpr float outer[] = {-0.00019510684069246054f, 1.1296759843826294f,   -0.367125004529953f,
                               0.108995221555233f,       -0.025748612359166145f, 0.004504317417740822f,
                               -0.0005389406578615308f,  3.889390063704923e-05f, -1.265466607947019e-06f};
    const V magnitude = abs(x);
    const V z = min(magnitude, set(5.5f));
    const V tail = select(magnitude < set(5.5f), exp((zero() - z * z) - horner(outer, z)), zero());
    const V far = select(x < zero(), set(2.0f) - tail, tail);
    const V c = min(max(x, set(-1.0f)), set(1.0f));
    const V near = set(1.0f) - c * horner(centre, c * c);
    return select(magnitude <= set(1.0f), near, far);
}

// The same functions of one number.
INLINE float recip(float x) { return first(recip(set(x))); }
INLINE float rsqrt(float x) { return first(rsqrt(set(x))); }
INLINE float exp(float x) { return first(exp(set(x))); }

}  // namespace samebits::SAMEBITS_ISA
