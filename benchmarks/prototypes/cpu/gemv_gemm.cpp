// Block-quantized matmul (Q4_0, Q8_0 x int8 blocks): what the order of the block sums costs.
// Term of block b: float(isum_b) * (d_b * sa_b), isum exact. 16 output rows in the 16 lanes.
#include "common.h"
#include "orders.h"

struct Q4_0 {
    static constexpr const char* name = "Q4_0";
    static constexpr int bias = 8, regs = 4, low = -8, high = 7;
    // Low nibbles hold k 0-15, high nibbles 16-31; each 64-byte register gives two groups of 4 k.
    template <class Dot>
    static INLINE void each(const uint8_t* w, Dot dot) {
        const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            __m512i v = _mm512_load_si512(w + 64 * g);
            dot(g, _mm512_and_si512(v, mask));
            dot(g + 4, _mm512_and_si512(_mm512_srli_epi16(v, 4), mask));
        }
    }
    static void put(uint8_t* w, int row, int k, int value) {
        w[64 * (k % 16 / 4) + 4 * row + k % 4] |= (value + bias) << (k < 16 ? 0 : 4);
    }
};

struct Q8_0 {
    static constexpr const char* name = "Q8_0";
    static constexpr int bias = 128, regs = 8, low = -127, high = 127;
    template <class Dot>
    static INLINE void each(const uint8_t* w, Dot dot) {
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) dot(g, _mm512_load_si512(w + 64 * g));
    }
    static void put(uint8_t* w, int row, int k, int value) { w[64 * (k / 4) + 4 * row + k % 4] = value + bias; }
};

// One block of T tokens side by side: a kernel needs a single pointer for all of them.
template <int T>
struct Activation {
    int8_t q[8][T][4];
    float scale[T];
    int32_t start[T];  // -bias * sum of q, undoes the unsigned weights exactly
};

template <int T>
struct Row {
    __m512 v[T];
};

template <int T>
INLINE Row<T> zero() {
    Row<T> r;
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) r.v[t] = _mm512_setzero_ps();
    return r;
}

template <int T>
INLINE void add(Row<T>& a, const Row<T>& b) {
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) a.v[t] = _mm512_add_ps(a.v[t], b.v[t]);
}

// Pairs of blocks share a line of f16 scales, so every load is a whole cache line.
template <class Q>
constexpr int pair_bytes = 64 + 2 * 64 * Q::regs;

template <class Q, int T>
INLINE Row<T> terms(const uint8_t* w, const Activation<T>* act, int b) {
    const Activation<T>& a = act[b];
    const uint8_t* pair = w + size_t(b / 2) * pair_bytes<Q>;
    const uint8_t* quants = pair + 64 + b % 2 * 64 * Q::regs;
    __m512i acc[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) acc[t] = _mm512_set1_epi32(a.start[t]);
    if (T == 1 && b % 2 == 0) _mm_prefetch(pair + 4096, _MM_HINT_T0);
    Q::each(quants, [&](int g, __m512i weights) __attribute__((always_inline)) {
        if (T == 1 && g < Q::regs) _mm_prefetch(quants + 4096 + 64 * g, _MM_HINT_T0);
#pragma GCC unroll 8
        for (int t = 0; t < T; t++) {
            int32_t four;
            memcpy(&four, a.q[g][t], 4);
            acc[t] = _mm512_dpbusd_epi32(acc[t], weights, _mm512_set1_epi32(four));
        }
    });
    __m512 d = F16::load((const u16*)(pair + b % 2 * 32));
    Row<T> r;
#pragma GCC unroll 8
    for (int t = 0; t < T; t++)
        r.v[t] = _mm512_mul_ps(_mm512_cvtepi32_ps(acc[t]), _mm512_mul_ps(d, _mm512_set1_ps(a.scale[t])));
    return r;
}

struct Flat {
    static constexpr const char* name = "flat";
    static constexpr Sum sum = chain;
    template <class Q, int T>
    static INLINE Row<T> run(const uint8_t* w, const Activation<T>* a, int blocks) {
        Row<T> total = zero<T>();
        for (int b = 0; b < blocks; b += 2) {
            add(total, terms<Q, T>(w, a, b));
            add(total, terms<Q, T>(w, a, b + 1));
        }
        return total;
    }
};

struct Chunk8 {
    static constexpr const char* name = "chunk8";
    static constexpr Sum sum = blocks8;
    template <class Q, int T>
    static INLINE Row<T> run(const uint8_t* w, const Activation<T>* a, int blocks) {
        Row<T> total = zero<T>();
        int b = 0;
        for (; b + 8 <= blocks; b += 8) {
            Row<T> chunk = zero<T>();
            constexpr int step = T == 1 ? 8 : 2;  // unrolling further pays for one token only
            for (int i = b; i < b + 8; i += step)
#pragma GCC unroll 8
                for (int j = 0; j < step; j++) add(chunk, terms<Q, T>(w, a, i + j));
            add(total, chunk);
        }
        if (b < blocks) {
            Row<T> chunk = zero<T>();
            for (; b < blocks; b++) add(chunk, terms<Q, T>(w, a, b));
            add(total, chunk);
        }
        return total;
    }
};

struct Tree8 {
    static constexpr const char* name = "tree8";
    static constexpr Sum sum = trees8;
    template <class Q, int T, int N, bool Tail>
    static INLINE Row<T> tree(const uint8_t* w, const Activation<T>* a, int b, int blocks) {
        if constexpr (N == 1) {
            return Tail && b >= blocks ? zero<T>() : terms<Q, T>(w, a, b);
        } else {
            Row<T> left = tree<Q, T, N / 2, Tail>(w, a, b, blocks);
            add(left, tree<Q, T, N / 2, Tail>(w, a, b + N / 2, blocks));
            return left;
        }
    }
    template <class Q, int T>
    static INLINE Row<T> run(const uint8_t* w, const Activation<T>* a, int blocks) {
        Row<T> total = zero<T>();
        int b = 0;
        for (; b + 8 <= blocks; b += 8) add(total, tree<Q, T, 8, false>(w, a, b, blocks));
        if (b < blocks) add(total, tree<Q, T, 8, true>(w, a, b, blocks));
        return total;
    }
};

template <class Q, class Order, int T>
void matmul(const uint8_t* w, int n, const Activation<T>* a, int blocks, int tokens, float* out) {
    size_t group_bytes = size_t(blocks / 2) * pair_bytes<Q>;
    for (int row = 0; row < n; row += 16)
        for (int t0 = 0; t0 < tokens; t0 += T) {
            Row<T> r = Order::template run<Q, T>(w + row / 16 * group_bytes, a + t0 / T * blocks, blocks);
            for (int t = 0; t < T; t++) _mm512_storeu_ps(out + size_t(t0 + t) * n + row, r.v[t]);
        }
}

template <class Q>
struct Problem {
    int n, k, tokens, blocks = k / 32;
    std::vector<int8_t> weights, q;
    std::vector<u16> d;
    std::vector<float> scale;
    uint8_t* packed;

    Problem(int n, int k, int tokens) : n(n), k(k), tokens(tokens) {
        Rng rng;
        size_t group_bytes = size_t(blocks / 2) * pair_bytes<Q>;
        packed = allocate<uint8_t>(n / 16 * group_bytes);
        weights.resize(size_t(n) * k), d.resize(size_t(n) * blocks);
        for (int r = 0; r < n; r++)
            for (int b = 0; b < blocks; b++) {
                uint8_t* pair = packed + r / 16 * group_bytes + b / 2 * pair_bytes<Q>;
                u16 dd = d[size_t(r) * blocks + b] = F16::bits(0.01f * (0.5f + rng.uniform()));
                memcpy(pair + b % 2 * 32 + r % 16 * 2, &dd, 2);
                for (int i = 0; i < 32; i++) {
                    int v = weights[size_t(r) * k + 32 * b + i] = rng.integer(Q::low, Q::high);
                    Q::put(pair + 64 + b % 2 * 64 * Q::regs, r % 16, i, v);
                }
            }
        q.resize(tokens * k), scale.resize(tokens * blocks);
        for (int i = 0; i < tokens * k; i++) q[i] = rng.integer(-127, 127);
        for (auto& s : scale) s = 0.02f * (0.5f + rng.uniform());
    }
    template <int T>
    Activation<T>* activations() {
        auto* all = allocate<Activation<T>>(tokens / T * blocks);
        for (int i = 0; i < tokens * k; i++) {
            int t = i / k, b = i % k / 32;
            Activation<T>& a = all[t / T * blocks + b];
            a.q[i % 32 / 4][t % T][i % 4] = q[i];
            a.scale[t % T] = scale[t * blocks + b];
            a.start[t % T] -= Q::bias * q[i];
        }
        return all;
    }
};

template <class Q>
void check(Problem<Q>& p, std::vector<std::pair<Sum, const float*>> outputs, const std::string& what) {
    std::vector<float> term(p.blocks), want(p.n);
    for (int t = 0; t < p.tokens; t += 3) {
        std::vector<std::vector<float>> all(p.n, term);
        for (int r = 0; r < p.n; r++)
            for (int b = 0; b < p.blocks; b++) {
                int isum = 0;
                for (int i = 32 * b; i < 32 * b + 32; i++) isum += p.weights[size_t(r) * p.k + i] * p.q[t * p.k + i];
                all[r][b] = float(isum) * (F16::value(p.d[size_t(r) * p.blocks + b]) * p.scale[t * p.blocks + b]);
            }
        for (auto [sum, out] : outputs) {
            for (int r = 0; r < p.n; r++) want[r] = sum(all[r].data(), p.blocks);
            check_bits(what, out + size_t(t) * p.n, want.data(), p.n);
        }
    }
}

template <class Q, int T>
void bench(int n, int k, int tokens) {
    Problem<Q> p(n, k, tokens);
    std::vector<Candidate> cands;
    std::vector<std::pair<Sum, const float*>> outputs;
    auto enter = [&](auto order, auto width, const char* suffix) {
        using O = decltype(order);
        auto* a = p.template activations<width()>();
        float* out = allocate<float>(size_t(n) * tokens);
        cands.push_back({std::string(O::name) + suffix, [=, &p] { matmul<Q, O, width()>(p.packed, n, a, p.blocks, tokens, out); }});
        cands.back().run();
        outputs.push_back({O::sum, out});
    };
    std::integral_constant<int, T> wide;
    enter(Flat{}, wide, "");
    enter(Chunk8{}, wide, "");
    enter(Tree8{}, wide, "");
    if constexpr (T > 1) enter(Tree8{}, std::integral_constant<int, T / 2>{}, ", 4 tokens inner");  // its stack fits the registers
    std::string label = std::string(Q::name) + " " + std::to_string(n) + "x" + std::to_string(k);
    check(p, outputs, label);
    race(tokens == 1 ? "gemv, 1 token" : "gemm, 64 tokens", label, cands);
}

void errors(int k, bool positive) {  // positive: no cancellation between blocks
    Rng rng;
    std::string label = "K=" + std::to_string(k) + (positive ? ", all terms positive" : "");
    report_errors("matmul: error against float64, rms relative", label, {{"flat", chain}, {"chunk8", blocks8}, {"tree8", trees8}}, k / 32,
                  20000, [&](std::vector<float>& term) {
                      double exact = 0;
                      for (auto& t : term) {
                          int isum = 0;
                          for (int i = 0; i < 32; i++) {
                              int product = rng.integer(-8, 7) * rng.integer(-127, 127);
                              isum += positive ? std::abs(product) : product;
                          }
                          float d = F16::value(F16::bits(0.01f * (0.5f + rng.uniform()))), sa = 0.02f * (0.5f + rng.uniform());
                          t = float(isum) * (d * sa);
                          exact += double(isum) * double(d) * double(sa);
                      }
                      return exact;
                  });
}

template <class Q>
void bench_all() {
    const int shapes[][2] = {{576, 576}, {1536, 576}, {576, 1536}, {49152, 576}, {4096, 4096}};
    for (auto& shape : shapes) bench<Q, 1>(shape[0], shape[1], 1);
    bench<Q, 8>(1536, 576, 64);
    bench<Q, 8>(4096, 4096, 64);
}

int main() {
    bench_all<Q4_0>();
    bench_all<Q8_0>();
    for (bool positive : {false, true})
        for (int k : {576, 4096, 14336}) errors(k, positive);
    printf("{\"checked\": %ld}\n", (long)num_checked);
}
