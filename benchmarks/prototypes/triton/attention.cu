// Second opinion on the attention orders, where Triton cannot choose who holds what.
// Built with -fmad=false; bf16 products are exact, so the explicit fma equals mul-then-add.
#include <cstdint>
#include <cuda_runtime.h>

constexpr int G = 4, D = 128, PAGE = 16, CUT = 256, TILE = 128;
enum QOrder { QA, QB, QC, QCt, QD };
enum POrder { PA, PC, PD };

__device__ float low_bf16(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ float high_bf16(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

template <int N> struct Vec {
    float x[N];
    __device__ static Vec zero() { Vec v; _Pragma("unroll") for (int i = 0; i < N; i++) v.x[i] = 0; return v; }
    __device__ Vec operator+(const Vec& b) const { Vec v; _Pragma("unroll") for (int i = 0; i < N; i++) v.x[i] = x[i] + b.x[i]; return v; }
};

// Binary counter over an unrolled loop: after term i, finished left subtrees wait in stack[level].
template <int N, int LEVELS> __device__ void push(Vec<N> (&stack)[LEVELS + 1], Vec<N> v, int i) {
    int level = 0;
    #pragma unroll
    for (int bit = 0; bit < LEVELS; bit++)
        if (level == bit && (i >> bit & 1)) { v = stack[bit] + v; level = bit + 1; }
    #pragma unroll
    for (int l = 0; l <= LEVELS; l++) if (l == level) stack[l] = v;
}

// One thread per token; the rows come through shared memory so that global reads stay coalesced.
template <QOrder ORDER> __global__ void __launch_bounds__(TILE) scores(
        const float4* q, const uint4* k, const int* pages, float* s, float* maxima, float scale, int ctx, int hkv) {
    __shared__ uint4 rows[TILE * 16];
    __shared__ float4 qs[D];
    __shared__ float warp_max[TILE / 32][G];
    int tile = blockIdx.x, head = blockIdx.y, seq = blockIdx.z, t = threadIdx.x, group = seq * hkv + head;
    #pragma unroll
    for (int i = 0; i < 16; i++) {
        int token = i * (TILE / 16) + t / 16, piece = t % 16, pos = tile * TILE + token;
        long page = pages[seq * (ctx / PAGE) + pos / PAGE];
        const uint4* from = k + ((page * PAGE + pos % PAGE) * hkv + head) * 16 + piece;
        // The xor spreads one piece of 8 neighbouring tokens over all banks.
        uint32_t to = __cvta_generic_to_shared(rows + token * 16 + (piece ^ (token & 7)));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
    }
    qs[t] = q[group * D + t];
    asm volatile("cp.async.wait_all;");
    __syncthreads();

    Vec<G> acc = Vec<G>::zero(), stack[5], slots[ORDER == QD ? 16 : 1];
    for (auto& slot : slots) slot = Vec<G>::zero();
    #pragma unroll
    for (int c = 0; c < 16; c++) {
        uint4 raw = rows[t * 16 + (c ^ (t & 7))];
        uint32_t pairs[4] = {raw.x, raw.y, raw.z, raw.w};
        Vec<G> block = Vec<G>::zero(), pair, tree[3];
        #pragma unroll
        for (int i = 0; i < 8; i++) {
            float x = i % 2 ? high_bf16(pairs[i / 2]) : low_bf16(pairs[i / 2]);
            float4 q4 = qs[c * 8 + i];
            float qv[G] = {q4.x, q4.y, q4.z, q4.w};
            #pragma unroll
            for (int g = 0; g < G; g++) {
                if (ORDER == QA) pair.x[g] = i % 2 ? __fmaf_rn(x, qv[g], pair.x[g]) : x * qv[g];
                else if (ORDER == QB) acc.x[g] = __fmaf_rn(x, qv[g], acc.x[g]);
                else if (ORDER == QD) slots[(c * 8 + i) % 16].x[g] = __fmaf_rn(x, qv[g], slots[(c * 8 + i) % 16].x[g]);
                else block.x[g] = __fmaf_rn(x, qv[g], block.x[g]);
            }
            if (ORDER == QA && i % 2) push<G, 2>(tree, pair, i / 2);
        }
        if (ORDER == QA) push<G, 4>(stack, tree[2], c);
        if (ORDER == QCt) push<G, 4>(stack, block, c);
        if (ORDER == QC) acc = acc + block;
    }
    if (ORDER == QA || ORDER == QCt) acc = stack[4];
    if (ORDER == QD) for (auto& slot : slots) acc = acc + slot;
    #pragma unroll
    for (int g = 0; g < G; g++) {
        float v = acc.x[g] * scale;
        s[(long)(group * ctx + tile * TILE + t) * G + g] = v;
        for (int lane = 16; lane; lane /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, lane));
        if (t % 32 == 0) warp_max[t / 32][g] = v;
    }
    __syncthreads();
    if (t < G) {
        float v = warp_max[0][t];
        for (int w = 1; w < TILE / 32; w++) v = fmaxf(v, warp_max[w][t]);
        maxima[(group * G + t) * gridDim.x + tile] = v;
    }
}

__device__ float exp_to_bf16(float x) {
    float shifted = x * 1.4426950216293335f + 12582912.0f, n = shifted - 12582912.0f;
    float r = (x - n * 0.693145751953125f) - n * 1.428606765330187e-06f;
    float y = r * 0.0013888889225199819f + 0.008333333767950535f;
    y = y * r + 0.0416666679084301f;
    y = y * r + 0.1666666716337204f;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    y = x < -87.0f ? 0.0f : y * __int_as_float((__float_as_int(shifted) - 0x4B400000 + 127) << 23);
    int bits = __float_as_int(y);
    return __int_as_float((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

template <POrder ORDER, int N> __device__ Vec<N> over16(Vec<N> (&terms)[16]) {
    if (ORDER == PA) {
        Vec<N> stack[5];
        #pragma unroll
        for (int i = 0; i < 16; i++) push<N, 4>(stack, terms[i], i);
        return stack[4];
    }
    Vec<N> acc = Vec<N>::zero();
    for (auto& term : terms) acc = acc + term;
    return acc;
}

// 16 groups of threads; a group owns 16 positions of the cut (PA, PD a page; PC one row of every page),
// a thread of it W 32-bit words (2 W values) of each row. Group sums meet in shared memory.
template <POrder ORDER, int W> __global__ void __launch_bounds__(16 * 64 / W, ORDER == PA ? 2 : W == 4 ? 3 : 1) values(
        const float* s, const float* maxima, const uint32_t* v, const int* pages, float* o, float* l, int ctx, int tiles, int hkv) {
    constexpr int PER_ROW = 64 / W, THREADS = 16 * PER_ROW, E = 2 * W, AHEAD = 8;
    __shared__ float4 ps[CUT];
    __shared__ float row_max[G], l_parts[16][G];
    __shared__ float parts[16][G][D];
    int cut = blockIdx.x, head = blockIdx.y, seq = blockIdx.z, t = threadIdx.x, group = seq * hkv + head;
    int own = t / PER_ROW, col = t % PER_ROW;
    auto position = [&](int i) { return ORDER == PC ? i * 16 + own : own * 16 + i; };
    struct alignas(4 * W) Words { uint32_t x[W]; };
    Words raw[AHEAD];
    auto fetch = [&](int i) {
        int pos = position(i);
        long page = pages[seq * (ctx / PAGE) + cut * 16 + pos / PAGE];
        return *(const Words*)(v + ((page * PAGE + pos % PAGE) * hkv + head) * 64 + col * W);
    };
    #pragma unroll
    for (int i = 0; i < AHEAD; i++) raw[i] = fetch(i);

    if (t < 32 * G) {
        float m = -INFINITY;
        for (int i = t % 32; i < tiles; i += 32) m = fmaxf(m, maxima[(group * G + t / 32) * tiles + i]);
        for (int lane = 16; lane; lane /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, lane));
        if (t % 32 == 0) row_max[t / 32] = m;
    }
    __syncthreads();
    for (int i = t; i < CUT * G; i += THREADS) {
        ((float*)ps)[i] = exp_to_bf16(s[(long)(group * ctx + cut * CUT) * G + i] - row_max[i % G]);
    }
    __syncthreads();

    Vec<E * G> acc = Vec<E * G>::zero(), pair, stack[4];
    #pragma unroll
    for (int i = 0; i < 16; i++) {
        Words w = raw[i % AHEAD];
        if (i + AHEAD < 16) raw[i % AHEAD] = fetch(i + AHEAD);
        float4 p4 = ps[position(i)];
        float p[G] = {p4.x, p4.y, p4.z, p4.w};
        #pragma unroll
        for (int e = 0; e < E; e++) {
            float x = e % 2 ? high_bf16(w.x[e / 2]) : low_bf16(w.x[e / 2]);
            #pragma unroll
            for (int g = 0; g < G; g++)
                if (ORDER == PA) pair.x[g * E + e] = i % 2 ? __fmaf_rn(p[g], x, pair.x[g * E + e]) : p[g] * x;
                else acc.x[g * E + e] = __fmaf_rn(p[g], x, acc.x[g * E + e]);
        }
        if (ORDER == PA && i % 2) push<E * G, 3>(stack, pair, i / 2);
    }
    if (ORDER == PA) acc = stack[3];
    #pragma unroll
    for (int g = 0; g < G; g++)
        #pragma unroll
        for (int e = 0; e < E; e++) parts[own][g][col * E + e] = acc.x[g * E + e];
    if (t < 64) {
        Vec<1> terms[16];
        for (int i = 0; i < 16; i++) {
            int slot = t / G, pos = ORDER == PC ? i * 16 + slot : slot * 16 + i;
            terms[i].x[0] = ((float*)&ps[pos])[t % G];
        }
        l_parts[t / G][t % G] = over16<ORDER, 1>(terms).x[0];
    }
    __syncthreads();
    long index = (long)group * gridDim.x + cut;
    for (int i = t; i < G * D; i += THREADS) {
        Vec<1> terms[16];
        for (int j = 0; j < 16; j++) terms[j].x[0] = parts[j][0][i];
        o[index * G * D + i] = over16<ORDER, 1>(terms).x[0];
    }
    if (t < G) {
        Vec<1> terms[16];
        for (int j = 0; j < 16; j++) terms[j].x[0] = l_parts[j][t];
        l[index * G + t] = over16<ORDER, 1>(terms).x[0];
    }
}

extern "C" int k_pass(int order, void* q, void* k, void* pages, void* s, void* maxima, float scale,
                      int ctx, int hkv, int batch, void* stream) {
    auto kernel = order == QA ? scores<QA> : order == QB ? scores<QB> : order == QC ? scores<QC> : order == QCt ? scores<QCt> : scores<QD>;
    kernel<<<dim3(ctx / TILE, hkv, batch), TILE, 0, (cudaStream_t)stream>>>(
        (float4*)q, (uint4*)k, (int*)pages, (float*)s, (float*)maxima, scale, ctx, hkv);
    return cudaGetLastError();
}

extern "C" int v_pass(int order, int words, void* s, void* maxima, void* v, void* pages, void* o, void* l,
                      int ctx, int tiles, int hkv, int batch, void* stream) {
    auto kernel = order == PA ? (words == 2 ? values<PA, 2> : values<PA, 4>)
                : order == PC ? (words == 2 ? values<PC, 2> : values<PC, 4>) : (words == 2 ? values<PD, 2> : values<PD, 4>);
    kernel<<<dim3(ctx / CUT, hkv, batch), 16 * 64 / words, 0, (cudaStream_t)stream>>>(
        (float*)s, (float*)maxima, (uint32_t*)v, (int*)pages, (float*)o, (float*)l, ctx, tiles, hkv);
    return cudaGetLastError();
}
