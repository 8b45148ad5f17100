// Prefill attention: 64 query rows of one head against 512 keys, D=64, f16, register-tiled.
// Each page is widened to float32 once and serves all row tiles; scores and P.V are timed apart, without the softmax.
#include "tile.h"

constexpr int kRows = 64, kKeys = 512, kDim = 64, kPage = 16, kCut = 256;

struct Problem {
    u16* k = allocate<u16>(kKeys * kDim);         // [page][D][16 tokens]
    u16* v = allocate<u16>(kKeys * kDim);         // [page][16 tokens][D]
    float* q = allocate<float>(kRows * kDim);     // rounded to f16
    float* p = allocate<float>(kRows * kKeys);    // rounded to f16
    float* s = allocate<float>(kRows * kKeys);
    float* out = allocate<float>(kRows * kDim);

    Problem() {
        Rng rng;
        for (int i = 0; i < kKeys * kDim; i++) k[i] = F16::bits(rng.uniform() * 4 - 2), v[i] = F16::bits(rng.uniform() * 2 - 1);
        for (int i = 0; i < kRows * kDim; i++) q[i] = F16::value(F16::bits(rng.uniform() * 4 - 2));
        for (int i = 0; i < kRows * kKeys; i++) p[i] = F16::value(F16::bits(rng.uniform()));
    }

    template <class Order, int R, int P>
    void scores() const {
        alignas(64) float wide[P * kPage * kDim];
        for (int key = 0; key < kKeys; key += P * kPage) {
            for (int i = 0; i < P * kPage * kDim; i += 16) _mm512_store_ps(wide + i, F16::load(k + key * kDim + i));
            for (int r0 = 0; r0 < kRows; r0 += R) {
                const float* row = q + r0 * kDim;
                auto t = Order::template run<R, P, kDim>(
                    [row](int r, int d) __attribute__((always_inline)) { return row[r * kDim + d]; },
                    [&wide](int c, int d) __attribute__((always_inline)) { return _mm512_load_ps(wide + (c * kDim + d) * kPage); });
#pragma GCC unroll 16
                for (int r = 0; r < R; r++)
#pragma GCC unroll 16
                    for (int c = 0; c < P; c++) _mm512_store_ps(s + (r0 + r) * kKeys + key + c * kPage, t.v[r][c]);
            }
        }
    }

    template <class Order, int R, int C>
    void values() const {
        alignas(64) float wide[kCut * kDim];
        // Widened rows are laid down in the order they are read: 16 rows 4 KB apart would share one L1 set.
        auto place = [](int i) __attribute__((always_inline)) { return std::is_same_v<Order, Slots16> ? i % 16 * 16 + i / 16 : i; };
        memset(out, 0, kRows * kDim * sizeof(float));
        for (int cut = 0; cut < kKeys; cut += kCut) {
            for (int i = 0; i < kCut; i++)
                for (int d = 0; d < kDim; d += 16) _mm512_store_ps(wide + place(i) * kDim + d, F16::load(v + (cut + i) * kDim + d));
            for (int d0 = 0; d0 < kDim; d0 += 16 * C)
                for (int r0 = 0; r0 < kRows; r0 += R) {
                    const float *row = p + r0 * kKeys + cut, *col = wide + d0;
                    auto t = Order::template run<R, C, kCut>(
                        [row](int r, int i) __attribute__((always_inline)) { return row[r * kKeys + i]; },
                        [=](int c, int i) __attribute__((always_inline)) { return _mm512_load_ps(col + place(i) * kDim + 16 * c); });
#pragma GCC unroll 16
                    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
                        for (int c = 0; c < C; c++) {
                            float* sum = out + (r0 + r) * kDim + d0 + 16 * c;
                            _mm512_store_ps(sum, _mm512_add_ps(_mm512_load_ps(sum), t.v[r][c]));
                        }
                }
        }
    }

    template <class Order, int R, int P>
    Candidate score_candidate(const char* name) const {
        std::vector<float> want(kRows * kKeys), term(kDim);
        for (int r = 0; r < kRows; r++)
            for (int i = 0; i < kKeys; i++) {
                for (int d = 0; d < kDim; d++)
                    term[d] = q[r * kDim + d] * F16::value(k[i / kPage * kPage * kDim + d * kPage + i % kPage]);
                want[r * kKeys + i] = Order::sum(term.data(), kDim);
            }
        scores<Order, R, P>();
        check_bits(name, s, want.data(), want.size());
        return {name, [this] { scores<Order, R, P>(); }};
    }

    template <class Order, int R, int C>
    Candidate value_candidate(const char* name) const {
        std::vector<float> want(kRows * kDim, 0.0f), term(kCut);
        for (int cut = 0; cut < kKeys; cut += kCut)
            for (int r = 0; r < kRows; r++)
                for (int d = 0; d < kDim; d++) {
                    for (int i = 0; i < kCut; i++) term[i] = p[r * kKeys + cut + i] * F16::value(v[(cut + i) * kDim + d]);
                    want[r * kDim + d] += Order::sum(term.data(), kCut);
                }
        values<Order, R, C>();
        check_bits(name, out, want.data(), want.size());
        return {name, [this] { values<Order, R, C>(); }};
    }
};

// Products are exact, so the error is the order's alone. P is like a softmax's: positive, mostly small.
void errors() {
    Rng rng;
    auto fill = [&](auto left) {
        return [&rng, left](std::vector<float>& term) {
            double exact = 0;
            for (auto& t : term) exact += t = F16::value(F16::bits(left())) * F16::value(F16::bits(rng.normal()));
            return exact;
        };
    };
    for (int d : {64, 128})
        report_errors("Q.K over D: error against float64, rms relative", "D=" + std::to_string(d),
                      {{"QA", pair_tree}, {"QB", chain}, {"QC", blocks8}, {"QCt", block_tree8}, {"QD", slots16}}, d, 20000,
                      fill([&] { return rng.normal(); }));
    report_errors("P.V inside a cut: error against float64, rms relative", "256 positions",
                  {{"PA", pair_tree}, {"PB", chain}, {"PC", slots16}, {"PD", runs16}}, kCut, 20000,
                  fill([&] { return std::exp(rng.normal() - 3); }));
}

int main() {
    Problem problem;
    const char* label = "64 rows x 512 keys, D=64, f16";
    // Each order has its own tile: one that suits the sums it keeps pending.
    race("prefill Q.K", label,
         {problem.score_candidate<PairTree, 8, 1>("QA tree"), problem.score_candidate<Chain, 4, 4>("QB chain"),
          problem.score_candidate<Blocks8, 4, 4>("QC blocks of 8"), problem.score_candidate<BlockTree8<16>, 4, 4>("QCt tree of blocks"),
          problem.score_candidate<Slots16, 4, 4>("QD 16 slots")});
    race("prefill P.V", label,
         {problem.value_candidate<PairTree, 8, 1>("PA tree"), problem.value_candidate<Chain, 4, 4>("PB chain"),
          problem.value_candidate<Slots16, 4, 4>("PC 16x16"), problem.value_candidate<Runs16, 16, 1>("PD runs of 16")});
    errors();
    printf("{\"checked\": %ld}\n", (long)num_checked);
}
