// Sum of squares of one row (RMSNorm), float32, mul then add unfused: what each order costs.
#include "common.h"
#include "orders.h"

INLINE __m512 square(const float* x) {
    __m512 v = _mm512_loadu_ps(x);
    return _mm512_mul_ps(v, v);
}

// Squares are never -0, so adding the +0 padding is the identity: kernels skip whole vectors of it.
constexpr int padded(int n) {
    int width = 1;
    while (width < n) width *= 2;
    return width;
}

INLINE __m512 add_pairs(__m512 a, __m512 b) {  // adjacent pairs of a, then of b
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    return _mm512_add_ps(_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b));
}

struct PairTree {
    static constexpr const char* name = "RA pair tree";
    static constexpr Sum sum = pair_tree;
    template <int N>  // N vectors
    static INLINE __m512 tree(const float* x) {
        if constexpr (N == 1) return square(x);
        else return add_pairs(tree<N / 2>(x), tree<N / 2>(x + 8 * N));
    }
    template <int Width>
    static float run(const float* x) {
        const __m512 zero = _mm512_setzero_ps();
        constexpr int Sub = 4, count = Width / (16 * Sub), levels = __builtin_ctz(padded(Width) / (16 * Sub));
        static_assert(Width % (16 * Sub) == 0);
        __m512 pending[16];  // a binary counter of finished subtrees
        for (int i = 0; i < count; i++) {
            __m512 s = tree<Sub>(x + 16 * Sub * i);
            int level = 0;
            for (; i >> level & 1; level++) s = add_pairs(pending[level], s);
            pending[level] = s;
        }
        if constexpr (count == 1 << levels) return finish(pending[levels]);
        __m512 s = zero;  // the padding: a right child that may be all zeros
        for (int level = 0; level < levels; level++) s = count >> level & 1 ? add_pairs(pending[level], s) : add_pairs(s, zero);
        return finish(s);
    }
    static INLINE float finish(__m512 s) {
        for (int i = 0; i < 4; i++) s = add_pairs(s, _mm512_setzero_ps());
        return _mm512_cvtss_f32(s);
    }
};

struct FoldTree {
    static constexpr const char* name = "RF fold tree";
    static constexpr Sum sum = fold_tree;
    // The last fold adds even and odd positions, so the recursion splits by parity.
    template <int N>
    static INLINE __m512 fold(const __m512* v, int start, int step) {
        if constexpr (N == 1) {
            return v[start];
        } else {
            return _mm512_add_ps(fold<N / 2>(v, start, 2 * step), fold<N / 2>(v, start + step, 2 * step));
        }
    }
    template <int Width>
    static float run(const float* x) {
        constexpr int stride = padded(Width) / 16, count = Width / stride;  // radix 16: one pass leaves 1/16 of the row
        static_assert(Width % stride == 0 && stride % 16 == 0);
        alignas(64) float rest[stride];
        for (int i = 0; i < stride; i += 16) {
            __m512 v[16];
#pragma GCC unroll 16
            for (int j = 0; j < 16; j++) v[j] = j < count ? square(x + i + j * stride) : _mm512_setzero_ps();
            _mm512_store_ps(rest + i, fold<16>(v, 0, 1));
        }
        for (int half = stride / 2; half >= 16; half /= 2)
            for (int i = 0; i < half; i += 16)
                _mm512_store_ps(rest + i, _mm512_add_ps(_mm512_load_ps(rest + i), _mm512_load_ps(rest + i + half)));
        __m512 s = _mm512_load_ps(rest);
        __m256 h = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
        __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
        q = _mm_add_ps(q, _mm_movehl_ps(q, q));
        return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
    }
};

INLINE float slots_in_order(__m512 v) {
    alignas(64) float slot[16];
    _mm512_store_ps(slot, v);
    float acc = 0;
#pragma GCC unroll 16
    for (int j = 0; j < 16; j++) acc += slot[j];
    return acc;
}

struct Quads {
    __m512 v[4];
};

// 4x4 transposes inside 128 bits: quarter l of v[i] holds element 4l+i of a, b, c and d.
INLINE Quads transpose(__m512 a, __m512 b, __m512 c, __m512 d) {
    __m512 e = _mm512_unpacklo_ps(a, b), f = _mm512_unpackhi_ps(a, b);
    __m512 g = _mm512_unpacklo_ps(c, d), h = _mm512_unpackhi_ps(c, d);
    return {_mm512_shuffle_ps(e, g, 0x44), _mm512_shuffle_ps(e, g, 0xee), _mm512_shuffle_ps(f, h, 0x44), _mm512_shuffle_ps(f, h, 0xee)};
}

// Of each of four vectors, the 16 lanes in order.
INLINE __m128 lanes_in_order(const __m512* s) {
    Quads slot = transpose(s[0], s[1], s[2], s[3]);
    __m128 acc = _mm_setzero_ps();
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) acc = _mm_add_ps(acc, _mm512_castps512_ps128(slot.v[i]));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) acc = _mm_add_ps(acc, _mm512_extractf32x4_ps(slot.v[i], 1));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) acc = _mm_add_ps(acc, _mm512_extractf32x4_ps(slot.v[i], 2));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) acc = _mm_add_ps(acc, _mm512_extractf32x4_ps(slot.v[i], 3));
    return acc;
}

// Four cuts go in step: independent chains, and one transpose puts their lane sums side by side.
template <class Inner, int Width>
float cut_sums(const float* x) {
    float total = 0;
    constexpr int cuts = Width / 256, tail = Width % 256;
    for (int c = 0; c + 4 <= cuts; c += 4) {
        const float* cut[4] = {x + 256 * c, x + 256 * (c + 1), x + 256 * (c + 2), x + 256 * (c + 3)};
        __m512 s[4];
        Inner::template lanes<4>(cut, s);
        alignas(16) float sum[4];
        _mm_store_ps(sum, lanes_in_order(s));
        for (float c : sum) total += c;
    }
    constexpr int done = cuts / 4 * 4, left = cuts - done;
    if constexpr (left + tail > 0) {
        const float* cut[3] = {x + 256 * done, x + 256 * (done + 1), x + 256 * (done + 2)};
        __m512 s[4] = {};
        Inner::template lanes<left>(cut, s);
        s[left] = Inner::template tail_lanes<tail>(x + 256 * cuts);
        alignas(16) float sum[4];
        _mm_store_ps(sum, lanes_in_order(s));
        for (int i = 0; i < left + (tail > 0); i++) total += sum[i];
    }
    return total;
}

struct Cuts {
    static constexpr const char* name = "RC cuts of 256";
    static constexpr Sum sum = cuts256;
    template <int Count>
    static INLINE void lanes(const float* const* cut, __m512* s) {  // lane j: slot j
#pragma GCC unroll 4
        for (int c = 0; c < Count; c++) s[c] = _mm512_setzero_ps();
#pragma GCC unroll 4
        for (int i = 0; i < 16; i++)
#pragma GCC unroll 4
            for (int c = 0; c < Count; c++) s[c] = _mm512_add_ps(s[c], square(cut[c] + 16 * i));
    }
    template <int N>
    static INLINE __m512 tail_lanes(const float* x) {
        __m512 s = _mm512_setzero_ps();
#pragma GCC unroll 16
        for (int i = 0; i < N; i += 16) s = _mm512_add_ps(s, square(x + i));
        return s;
    }
    template <int Width>
    static float run(const float* x) {
        return cut_sums<Cuts, Width>(x);
    }
};

struct Runs {
    static constexpr const char* name = "RR runs of 16";
    static constexpr Sum sum = cut_runs256;
    // A 16x16 transpose; joining halves on load leaves 48 shuffles, as many as there are other operations for the other port.
    static INLINE __m512 joined(const float* x, int run, int half) {  // half of this run, half of the fourth after it
        __m512 low = _mm512_castps256_ps512(_mm256_loadu_ps(x + 16 * run + 8 * half));
        __m512 v = _mm512_insertf32x8(low, _mm256_loadu_ps(x + 16 * (run + 4) + 8 * half), 1);
        return _mm512_mul_ps(v, v);
    }
    static INLINE Quads eight(const float* x, int run, int half) {
        return transpose(joined(x, run, half), joined(x, run + 1, half), joined(x, run + 2, half), joined(x, run + 3, half));
    }
    template <int Count>
    static INLINE void lanes(const float* const* cut, __m512* s) {  // lane j: run j
        for (int c = 0; c < Count; c++) {
            __m512 acc = _mm512_setzero_ps();
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                Quads a = eight(cut[c], 0, half), b = eight(cut[c], 8, half);
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++) acc = _mm512_add_ps(acc, _mm512_shuffle_f32x4(a.v[i], b.v[i], 0x88));
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++) acc = _mm512_add_ps(acc, _mm512_shuffle_f32x4(a.v[i], b.v[i], 0xdd));
            }
            s[c] = acc;
        }
    }
    template <int N>
    static INLINE __m512 tail_lanes(const float* x) {  // four runs at a time
        static_assert(N % 64 == 0);
        alignas(64) float run[16] = {};
        for (int i = 0; i < N; i += 64) {
            __m512 v[4] = {square(x + i), square(x + i + 16), square(x + i + 32), square(x + i + 48)};
            _mm_store_ps(run + i / 16, lanes_in_order(v));
        }
        return _mm512_load_ps(run);
    }
    template <int Width>
    static float run(const float* x) {
        return cut_sums<Runs, Width>(x);
    }
};

struct Lanes {
    static constexpr const char* name = "RL 256 lanes";
    static constexpr Sum sum = lanes256;
    template <int Width>
    static float run(const float* x) {
        __m512 lane[16];
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) lane[j] = _mm512_setzero_ps();
        int i = 0;
        for (; i + 256 <= Width; i += 256)
#pragma GCC unroll 16
            for (int j = 0; j < 16; j++) lane[j] = _mm512_add_ps(lane[j], square(x + i + 16 * j));
#pragma GCC unroll 16
        for (int j = 0; j < Width % 256 / 16; j++) lane[j] = _mm512_add_ps(lane[j], square(x + i + 16 * j));
        __m512 slots = _mm512_setzero_ps();
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) slots = _mm512_add_ps(slots, lane[j]);
        return slots_in_order(slots);
    }
};

template <int Width>
void bench() {
    float* x = allocate<float>(Width);
    std::vector<Candidate> cands;
    auto enter = [&](auto order) {
        using O = decltype(order);
        Rng rng;
        std::vector<float> term(Width), got(200), want(200);
        for (int trial = 0; trial < 200; trial++) {
            for (int i = 0; i < Width; i++) x[i] = rng.normal(), term[i] = x[i] * x[i];
            got[trial] = O::template run<Width>(x);
            want[trial] = O::sum(term.data(), Width);
        }
        check_bits(O::name, got.data(), want.data(), 200);
        // The fence keeps calls from overlapping: a norm needs its sum before it can go on.
        cands.push_back({O::name, [x] {
                             float s = O::template run<Width>(x);
                             asm volatile("lfence" ::"x"(s) : "memory");
                         }});
    };
    enter(PairTree{});
    enter(FoldTree{});
    enter(Cuts{});
    enter(Runs{});
    enter(Lanes{});
    race("sum of squares of one row", "width " + std::to_string(Width), cands);
}

void errors(int width) {
    Rng rng;
    report_errors("sum of squares: error against float64, rms relative", "width " + std::to_string(width),
                  {{"RA", pair_tree}, {"RF", fold_tree}, {"RC", cuts256}, {"RR", cut_runs256}, {"RL", lanes256}}, width, 2000,
                  [&](std::vector<float>& term) {
                      double exact = 0;
                      for (auto& t : term) {
                          float x = rng.normal();
                          t = x * x, exact += double(x) * x;
                      }
                      return exact;
                  });
}

int main() {
    bench<576>();
    bench<4096>();
    bench<14336>();
    for (int width : {576, 4096, 14336}) errors(width);
    printf("{\"checked\": %ld}\n", (long)num_checked);
}
