// The softmax denominator in each order of P.V, for the decode kernels; p is [position][4 heads].
#pragma once
#include "tile.h"

constexpr int kPage = 16, kCut = 256, kPagesPerCut = kCut / kPage;

inline __m128 denominator(Chain, const float* p, int context) {
    __m128 total = _mm_setzero_ps();
    for (int c = 0; c < context; c += 8 * kCut) {  // eight cuts in step hide the latency of the chain
        __m128 sum[8] = {};
        for (int i = 0; i < kCut; i++)
#pragma GCC unroll 8
            for (int k = 0; k < 8; k++) sum[k] = _mm_add_ps(sum[k], _mm_load_ps(p + 4 * (c + k * kCut + i)));
        for (auto s : sum) total = _mm_add_ps(total, s);
    }
    return total;
}

inline __m128 denominator(Slots16, const float* p, int context) {
    __m128 total = _mm_setzero_ps();
    for (const float* cut = p; cut < p + 4 * context; cut += 4 * kCut) {
        __m512 slot[4] = {};  // four slots of four heads each
        for (int i = 0; i < kPagesPerCut; i++)
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++) slot[k] = _mm512_add_ps(slot[k], _mm512_load_ps(cut + 64 * i + 16 * k));
        alignas(64) float flat[64];
        for (int k = 0; k < 4; k++) _mm512_store_ps(flat + 16 * k, slot[k]);
        __m128 sum = _mm_setzero_ps();
        for (int j = 0; j < 16; j++) sum = _mm_add_ps(sum, _mm_load_ps(flat + 4 * j));
        total = _mm_add_ps(total, sum);
    }
    return total;
}

inline __m128 denominator(Runs16, const float* p, int context) {
    __m128 total = _mm_setzero_ps();
    for (const float* cut = p; cut < p + 4 * context; cut += 4 * kCut) {
        __m128 run[kPagesPerCut] = {};  // every run of the cut in step
        for (int i = 0; i < kPage; i++)
#pragma GCC unroll 16
            for (int k = 0; k < kPagesPerCut; k++) run[k] = _mm_add_ps(run[k], _mm_load_ps(cut + 4 * (kPage * k + i)));
        __m128 sum = _mm_setzero_ps();
        for (auto r : run) sum = _mm_add_ps(sum, r);
        total = _mm_add_ps(total, sum);
    }
    return total;
}

INLINE __m512 add_pairs(__m512 a, __m512 b) {  // neighbouring positions are neighbouring quarters
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

inline __m128 denominator(PairTree, const float* p, int context) {
    __m128 total = _mm_setzero_ps();
    for (const float* cut = p; cut < p + 4 * context; cut += 4 * kCut) {
        __m512 t[kCut / 8];
        for (int i = 0; i < kCut / 8; i++) t[i] = add_pairs(_mm512_load_ps(cut + 32 * i), _mm512_load_ps(cut + 32 * i + 16));
        for (int n = kCut / 16; n >= 1; n /= 2)
            for (int i = 0; i < n; i++) t[i] = add_pairs(t[2 * i], t[2 * i + 1]);
        __m512 s = add_pairs(t[0], t[0]);
        total = _mm_add_ps(total, _mm512_castps512_ps128(add_pairs(s, s)));
    }
    return total;
}
