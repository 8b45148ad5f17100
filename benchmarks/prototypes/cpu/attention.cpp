// Paged decode attention, one query token: what the orders of Q.K over D and of P.V inside a cut of 256 cost.
// K pages are [D][16 tokens], V pages [16 tokens][D]; query heads of one KV head share the loads.
#include "denominator.h"

// exp on [-87, 0] from mul and add only, +0 below; scalar and vector run the same operations.
constexpr float kLog2e = 1.44269504f, kLn2Hi = 0.693359375f, kLn2Lo = -2.12194440e-4f, kMagic = 12582912.0f;
constexpr float kPoly[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};

float exp_scalar(float x) {
    if (x < -87.0f) return 0;
    float n = (x * kLog2e + kMagic) - kMagic, r = (x - n * kLn2Hi) - n * kLn2Lo, y = kPoly[0];
    for (int i = 1; i < 6; i++) y = y * r + kPoly[i];
    y = (y * (r * r) + r) + 1.0f;
    uint32_t u = uint32_t(int(n) + 127) << 23;
    float scale;
    memcpy(&scale, &u, 4);
    return y * scale;
}

INLINE __m512 exp_vector(__m512 x) {
    auto mul = [](__m512 a, __m512 b) { return _mm512_mul_ps(a, b); };
    auto set = [](float f) { return _mm512_set1_ps(f); };
    __m512 n = _mm512_sub_ps(_mm512_add_ps(mul(x, set(kLog2e)), set(kMagic)), set(kMagic));
    __m512 r = _mm512_sub_ps(_mm512_sub_ps(x, mul(n, set(kLn2Hi))), mul(n, set(kLn2Lo))), y = set(kPoly[0]);
    for (int i = 1; i < 6; i++) y = _mm512_add_ps(mul(y, r), set(kPoly[i]));
    y = _mm512_add_ps(_mm512_add_ps(mul(y, mul(r, r)), r), set(1.0f));
    __m512i scale = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
    return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(x, set(-87.0f), _CMP_NLT_UQ), y, _mm512_castsi512_ps(scale));
}

template <class E, int D, int H>  // H query heads per KV head
struct Attention {
    static constexpr int page_size = kPage * D;
    const u16 *k, *v;   // this KV head's part of page 0
    size_t page_stride;  // elements from a page to the next
    const int* pages;
    int context;
    const float* q;  // [H][D], already rounded to E

    const u16* k_page(int i) const { return k + pages[i] * page_stride; }
    const u16* v_page(int i) const { return v + pages[i] * page_stride; }

    // Scaled scores [H][context] and the exact maximum of each head; P pages go together.
    template <class Order, int P>
    void scores(float* s, float* max) const {
        const __m512 scale = _mm512_set1_ps(D == 64 ? 0.125f : 0.08838834764f);
        __m512 top[H];
        for (int h = 0; h < H; h++) top[h] = _mm512_set1_ps(-INFINITY);
        int count = context / kPage;
        for (int page = 0; page < count; page += P) {
            const u16 *now[P], *next[P];
            for (int c = 0; c < P; c++) now[c] = k_page(page + c), next[c] = k_page(std::min(page + P + c, count - 1));
            auto t = Order::template run<H, P, D>(
                [this](int h, int d) __attribute__((always_inline)) { return q[h * D + d]; },
                [&](int c, int d) __attribute__((always_inline)) {
                    if (d % 2 == 0) _mm_prefetch(next[c] + d * kPage, _MM_HINT_T0);
                    return E::load(now[c] + d * kPage);
                });
#pragma GCC unroll 4
            for (int h = 0; h < H; h++)
#pragma GCC unroll 4
                for (int c = 0; c < P; c++) {
                    __m512 x = _mm512_mul_ps(t.v[h][c], scale);
                    top[h] = _mm512_max_ps(top[h], x);
                    _mm512_storeu_ps(s + h * context + (page + c) * kPage, x);
                }
        }
        for (int h = 0; h < H; h++) max[h] = _mm512_reduce_max_ps(top[h]);
    }

    // p is [position][4]: heads side by side, so that one 128-bit add advances every head's denominator.
    void probabilities(const float* s, const float* max, float* p) const {
        for (int i = 0; i < context; i += kPage) {
            __m512 x[4] = {};
#pragma GCC unroll 4
            for (int h = 0; h < H; h++)
                x[h] = E::round(exp_vector(_mm512_sub_ps(_mm512_loadu_ps(s + h * context + i), _mm512_set1_ps(max[h]))));
            __m512 a = _mm512_unpacklo_ps(x[0], x[1]), b = _mm512_unpackhi_ps(x[0], x[1]);
            __m512 c = _mm512_unpacklo_ps(x[2], x[3]), d = _mm512_unpackhi_ps(x[2], x[3]);
            __m512 y[4] = {_mm512_shuffle_ps(a, c, 0x44), _mm512_shuffle_ps(a, c, 0xee), _mm512_shuffle_ps(b, d, 0x44),
                           _mm512_shuffle_ps(b, d, 0xee)};  // quarter l of y[i]: position 4l+i
            __m512 e = _mm512_shuffle_f32x4(y[0], y[1], 0x44), f = _mm512_shuffle_f32x4(y[2], y[3], 0x44);
            __m512 g = _mm512_shuffle_f32x4(y[0], y[1], 0xee), h = _mm512_shuffle_f32x4(y[2], y[3], 0xee);
            _mm512_store_ps(p + 4 * i, _mm512_shuffle_f32x4(e, f, 0x88));
            _mm512_store_ps(p + 4 * i + 16, _mm512_shuffle_f32x4(e, f, 0xdd));
            _mm512_store_ps(p + 4 * i + 32, _mm512_shuffle_f32x4(g, h, 0x88));
            _mm512_store_ps(p + 4 * i + 48, _mm512_shuffle_f32x4(g, h, 0xdd));
        }
    }

    // C vectors of D at a time; the prefetch follows the order, so that it stays some 4 KB ahead.
    template <class Order, int C>
    void values(const float* p, float* out) const {
        alignas(16) float den[4];
        _mm_store_ps(den, denominator(Order{}, p, context));
        alignas(64) float total[H][D] = {};
        constexpr bool by_slot = std::is_same_v<Order, Slots16>;
        int count = context / kPage;
        for (int cut = 0; cut < count; cut += kPagesPerCut) {
            const float* cut_p = p + cut * kPage * 4;
            for (int d0 = 0; d0 < D; d0 += 16 * C) {
                const u16* part[2 * kPagesPerCut];  // the pages' columns to read now, then those to read next
                bool last = d0 + 16 * C == D;
                for (int i = 0; i < kPagesPerCut; i++) {
                    part[i] = v_page(cut + i) + d0;
                    part[i + kPagesPerCut] = v_page(std::min(cut + i + last * kPagesPerCut, count - 1)) + (last ? 0 : d0 + 16 * C);
                }
                auto t = Order::template run<H, C, kCut>(
                    [cut_p](int h, int i) __attribute__((always_inline)) { return cut_p[4 * i + h]; },
                    [&](int c, int i) __attribute__((always_inline)) {
                        int page = i / kPage, row = i % kPage;
                        if (c % 2 == 0) {
                            int ahead = by_slot ? (row + 2) / kPage * kPagesPerCut + page : page + 2;
                            int ahead_row = by_slot ? (row + 2) % kPage : row;
                            _mm_prefetch(part[ahead] + ahead_row * D + 16 * c, _MM_HINT_T0);
                        }
                        return E::load(part[page] + row * D + 16 * c);
                    });
#pragma GCC unroll 4
                for (int h = 0; h < H; h++)
#pragma GCC unroll 8
                    for (int c = 0; c < C; c++) {
                        float* sum = total[h] + d0 + 16 * c;
                        _mm512_store_ps(sum, _mm512_add_ps(_mm512_load_ps(sum), t.v[h][c]));
                    }
            }
        }
        for (int h = 0; h < H; h++)
            for (int d = 0; d < D; d++) out[h * D + d] = total[h][d] / den[h];
    }
};

template <class E, int D, int H>
struct Bench {
    using Head = Attention<E, D, H>;
    int kv_heads, context, layers;  // enough layers that no pass finds its cache lines in L2
    int page_pad;                   // elements between pages: without it 32 KB pages put a row of every page in one L1 set
    std::string label = std::string(E::name) + " D=" + std::to_string(D) + " " + std::to_string(H * kv_heads) + "/" +
                        std::to_string(kv_heads) + " heads, context " + std::to_string(context) + (page_pad ? "" : ", pages 32 KB apart");
    u16 *k, *v;
    float *q, *s, *p, *out;
    std::vector<int> pages;

    Bench(int kv_heads, int context, int layers, int page_pad = 64)
        : kv_heads(kv_heads), context(context), layers(layers), page_pad(page_pad) {
        size_t cache = size_t(layers) * context / kPage * page_stride();
        k = allocate<u16>(cache), v = allocate<u16>(cache);
        q = allocate<float>(kv_heads * H * D), out = allocate<float>(kv_heads * H * D);
        s = allocate<float>(size_t(kv_heads) * H * context), p = allocate<float>(size_t(kv_heads) * 4 * context);
        Rng rng;
        for (size_t i = 0; i < cache; i++) k[i] = E::bits(rng.uniform() * 4 - 2), v[i] = E::bits(rng.uniform() * 2 - 1);
        for (int i = 0; i < kv_heads * H * D; i++) q[i] = E::value(E::bits(rng.uniform() * 4 - 2));
        pages.resize(layers * context / kPage);
        for (size_t i = 0; i < pages.size(); i++) pages[i] = i;
        for (size_t i = pages.size() - 1; i > 0; i--) std::swap(pages[i], pages[rng.next() % (i + 1)]);
    }
    size_t page_stride() const { return size_t(kv_heads) * Head::page_size + page_pad; }
    Head head(int layer, int g) const {
        size_t part = size_t(g) * Head::page_size;
        return {k + part, v + part, page_stride(), pages.data() + layer * context / kPage, context, q + g * H * D};
    }
    template <class F>
    void each(int from, int to, F f) const {
        for (int layer = from; layer < to; layer++)
            for (int g = 0; g < kv_heads; g++) f(head(layer, g), s + size_t(g) * H * context, p + size_t(g) * 4 * context, out + g * H * D);
    }

    // The scalar statement: terms in float32, one order over D, one inside each cut, cuts in order.
    std::vector<float> reference_scores(Sum over_d) const {
        std::vector<float> scores(size_t(kv_heads) * H * context), term(D);
        for (int h = 0; h < kv_heads * H; h++) {
            Head a = head(0, h / H);
            for (int i = 0; i < context; i++) {
                for (int d = 0; d < D; d++) term[d] = q[h * D + d] * E::value(a.k_page(i / kPage)[d * kPage + i % kPage]);
                scores[size_t(h) * context + i] = over_d(term.data(), D) * (D == 64 ? 0.125f : 0.08838834764f);
            }
        }
        return scores;
    }
    std::vector<float> reference_result(Sum over_cut, const std::vector<float>& scores) const {
        std::vector<float> result(kv_heads * H * D), term(kCut);
        for (int h = 0; h < kv_heads * H; h++) {
            Head a = head(0, h / H);
            std::vector<float> x(scores.begin() + size_t(h) * context, scores.begin() + size_t(h + 1) * context);
            float max = *std::max_element(x.begin(), x.end());
            for (auto& e : x) e = E::value(E::bits(exp_scalar(e - max)));
            float den = 0;
            for (int c = 0; c < context; c += kCut) den += over_cut(x.data() + c, kCut);
            for (int d = 0; d < D; d++) {
                float total = 0;
                for (int c = 0; c < context; c += kCut) {
                    for (int i = 0; i < kCut; i++) term[i] = x[c + i] * E::value(a.v_page((c + i) / kPage)[i % kPage * D + d]);
                    total += over_cut(term.data(), kCut);
                }
                result[h * D + d] = total / den;
            }
        }
        return result;
    }

    template <class QK, int P>
    auto score_pass() {
        return [this](int from, int to) {
            each(from, to, [](const Head& a, float* s, float*, float*) {
                float max[H];
                a.template scores<QK, P>(s, max);
            });
        };
    }
    template <class PV, int C>
    auto value_pass() {
        return [this](int from, int to) {
            each(from, to, [](const Head& a, float*, float* p, float* out) { a.template values<PV, C>(p, out); });
        };
    }
    template <class QK, int P, class PV, int C>
    auto whole_pass() {
        return [this](int from, int to) {
            each(from, to, [](const Head& a, float* s, float* p, float* out) {
                float max[H];
                a.template scores<QK, P>(s, max);
                a.probabilities(s, max, p);
                a.template values<PV, C>(p, out);
            });
        };
    }
    template <class Pass>
    Candidate timed(const char* name, Pass pass) {
        return {name, [=, this] { pass(0, layers); }};
    }
    template <class QK, int P>
    Candidate scores(const char* name) {
        auto pass = score_pass<QK, P>();
        auto want = reference_scores(QK::sum);
        pass(0, 1);
        check_bits(label + " " + name, s, want.data(), want.size());
        return timed(name, pass);
    }
    template <class QK, int P, class PV, int C>
    Candidate whole(const char* name) {
        auto pass = whole_pass<QK, P, PV, C>();
        auto scores = reference_scores(QK::sum), want = reference_result(PV::sum, scores);
        pass(0, 1);
        check_bits(label + " " + name + " scores", s, scores.data(), scores.size());
        check_bits(label + " " + name, out, want.data(), want.size());
        return timed(name, pass);
    }

    void run() {
        constexpr int C = 4;
        // Every P.V order is in a whole pass, whose check comes before any timing and leaves p filled.
        std::vector<Candidate> pairs = {
            whole<PairTree, 2, PairTree, C>("QA,PA"),      whole<Chain, 2, Chain, C>("QB,PB"),
            whole<Blocks8, 2, Slots16, C>("QC,PC"),        whole<Blocks8, 2, Runs16, C>("QC,PD"),
            whole<BlockTree8<8>, 2, Slots16, C>("QCt,PC"), whole<BlockTree8<8>, 2, Runs16, C>("QCt,PD"),
        };
        race("decode Q.K, per layer", label,
             {scores<PairTree, 2>("QA tree"), scores<Chain, 2>("QB chain"), scores<Blocks8, 2>("QC blocks of 8"),
              scores<BlockTree8<8>, 2>("QCt tree of blocks"), scores<Slots16, 2>("QD 16 slots")}, layers);
        race("decode P.V, per layer", label,
             {timed("PA tree", value_pass<PairTree, C>()), timed("PB chain", value_pass<Chain, C>()),
              timed("PC 16x16", value_pass<Slots16, C>()), timed("PD runs of 16", value_pass<Runs16, C>())}, layers);
        race("decode attention, per layer", label, pairs, layers);
    }
};

int main() {
    for (int context : {2048, 4096}) {
        Bench<F16, 64, 3>(3, context, 16 * 4096 / context).run();
        Bench<F16, 128, 4>(8, context, 4 * 4096 / context).run();
        Bench<BF16, 128, 4>(8, context, 4 * 4096 / context).run();
    }
    Bench<F16, 128, 4>(8, 4096, 4, 0).run();
    printf("{\"checked\": %ld}\n", (long)num_checked);
}
