// Shared by the three topics: 16-bit types, data, bit checks and the alternating timer.
#pragma once
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#define INLINE inline __attribute__((always_inline))
using u16 = uint16_t;

struct F16 {
    static constexpr const char* name = "f16";
    static u16 bits(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
    static float value(u16 x) { return _cvtsh_ss(x); }
    static INLINE __m512 load(const u16* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
    static INLINE __m512 round(__m512 x) { return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)); }
};

struct BF16 {
    static constexpr const char* name = "bf16";
    static u16 bits(float x) {
        uint32_t u;
        memcpy(&u, &x, 4);
        return (u + 0x7fff + (u >> 16 & 1)) >> 16;
    }
    static float value(u16 x) {
        uint32_t u = uint32_t(x) << 16;
        float y;
        memcpy(&y, &u, 4);
        return y;
    }
    static INLINE __m512 load(const u16* p) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
    }
    static INLINE __m512 round(__m512 x) {  // integer rounding: vcvtneps2bf16 would flush denormals
        __m512i u = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
        u = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
        return _mm512_castsi512_ps(_mm512_and_si512(u, _mm512_set1_epi32(0xffff0000)));
    }
};

// Zeroed, on huge pages where the kernel grants them; lives until exit.
template <class T>
T* allocate(size_t count) {
    size_t huge = 2 << 20, bytes = (count * sizeof(T) + 8192 + huge - 1) / huge * huge;  // slack: prefetch runs 4 KB past the end
    void* p = aligned_alloc(huge, bytes);
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return (T*)p;
}

struct Rng {
    uint64_t state = 1;
    uint32_t next() {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return state >> 33;
    }
    int integer(int lo, int hi) { return lo + int(next() % uint32_t(hi - lo + 1)); }
    float uniform() { return float(next() & 0xffffff) / 16777216.0f; }
    float normal() {  // sum of 12 uniforms: close enough to gaussian for timing and error figures
        float s = -6;
        for (int i = 0; i < 12; i++) s += uniform();
        return s;
    }
};

inline int64_t num_checked = 0;

inline void check_bits(const std::string& what, const float* got, const float* want, size_t n) {
    size_t differ = 0;
    for (size_t i = 0; i < n; i++) differ += memcmp(got + i, want + i, 4) != 0;
    num_checked += n;
    if (!differ) return;
    fprintf(stderr, "%s: %zu of %zu outputs differ from the scalar order\n", what.c_str(), differ, n);
    exit(1);
}

struct Candidate {
    std::string name;
    std::function<void()> run;
};

// Candidates alternate; each round gives a ratio to the fastest, so drift of the machine cancels.
inline void race(const std::string& table, const std::string& label, std::vector<Candidate> cands, double work_per_call = 1,
                 int rounds = 41) {
    auto now_us = [] {  // CPU time of this thread: waiting behind other processes does not count
        timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
    };
    auto time_us = [&](Candidate& c, int reps) {
        double best = INFINITY;
        for (int slice = 0; slice < 3; slice++) {
            double start = now_us();
            for (int i = 0; i < reps; i++) c.run();
            best = std::min(best, (now_us() - start) / reps);
        }
        return best;
    };
    double once = INFINITY;
    for (auto& c : cands) once = std::min(once, time_us(c, 1));
    int reps = std::max(1, int(1000 / once));  // a sample is the best of three slices of at least 1 ms
    std::vector<std::vector<double>> us(cands.size());
    for (int r = 0; r < rounds; r++)
        for (size_t i = 0; i < cands.size(); i++) us[i].push_back(time_us(cands[i], reps) / work_per_call);
    auto median = [](std::vector<double> v) {
        std::sort(v.begin(), v.end());
        return v[v.size() / 2];
    };
    size_t best = 0;
    for (size_t i = 1; i < us.size(); i++)
        if (median(us[i]) < median(us[best])) best = i;
    printf("{\"table\": \"%s\", \"case\": \"%s\", \"results\": [", table.c_str(), label.c_str());
    for (size_t i = 0; i < cands.size(); i++) {
        std::vector<double> ratio;
        for (int r = 0; r < rounds; r++) ratio.push_back(us[i][r] / us[best][r]);
        printf("%s{\"name\": \"%s\", \"us\": %.4g, \"ratio\": %.4f, \"low\": %.3f, \"high\": %.3f}", i ? ", " : "",
               cands[i].name.c_str(), median(us[i]), median(ratio), *std::min_element(ratio.begin(), ratio.end()),
               *std::max_element(ratio.begin(), ratio.end()));
    }
    printf("]}\n");
    fflush(stdout);
}

struct NamedSum {
    const char* name;
    float (*sum)(const float*, int);
};

// rms of (order - float64) over rms of the float64 sum; fill(term) draws float32 terms and returns their float64 sum.
template <class Fill>
void report_errors(const std::string& table, const std::string& label, std::vector<NamedSum> orders, int num_terms, int samples,
                   Fill fill) {
    std::vector<float> term(num_terms);
    std::vector<double> square(orders.size());
    double norm = 0;
    for (int s = 0; s < samples; s++) {
        double exact = fill(term);
        norm += exact * exact;
        for (size_t o = 0; o < orders.size(); o++) square[o] += std::pow(orders[o].sum(term.data(), num_terms) - exact, 2);
    }
    printf("{\"table\": \"%s\", \"case\": \"%s\", \"errors\": {", table.c_str(), label.c_str());
    for (size_t o = 0; o < orders.size(); o++)
        printf("%s\"%s\": %.3g", o ? ", " : "", orders[o].name, std::sqrt(square[o] / norm));
    printf("}}\n");
}
