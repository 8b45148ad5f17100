// The row form of a linear recurrence with decay (ops/recurrence.py), one head of one sequence at a time. A rule says what
// the gates and u are made of; `Rule::kHasDelta` whether u needs k . S.
#pragma once
#include "elementary.h"
#include "recurrence_state.h"
#include "rows.h"

namespace samebits::SAMEBITS_ISA {

// The tensors of a call: q and k [T, Hk, K], v and out [T, H, V], state [N, H, K, V], ring [N, 16, W].
struct Scan {
    const Tensor *q, *k, *v, *out, *state, *ring;
    float scale;
    bool is_tiled;
    int64_t key_heads, key_dim, heads, width, padded;  // padded: the width V in whole vectors

    Scan(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& state, const Tensor& ring,
         float scale, bool is_tiled)
        : q(&q), k(&k), v(&v), out(&out), state(&state), ring(&ring), scale(scale), is_tiled(is_tiled),
          key_heads(q.shape[1]), key_dim(q.shape[2]), heads(v.shape[1]), width(v.shape[2]), padded(round_up(width, 16)) {}

    INLINE int64_t key_head(int64_t h) const { return is_tiled ? h % key_heads : h / (heads / key_heads); }
    INLINE int64_t ring_width() const { return key_heads * key_dim + heads * width + heads; }
    INLINE float* ring_row(int64_t slot, int64_t s) const { return ring->as<float>() + (slot * kChunk + s) * ring_width(); }
    INLINE float* ring_u(int64_t slot, int64_t s, int64_t h) const {
        return ring_row(slot, s) + key_heads * key_dim + h * width;
    }
    INLINE float& ring_gate(int64_t slot, int64_t s, int64_t h) const {
        return ring_row(slot, s)[key_heads * key_dim + heads * width + h];
    }
    // A head's row of a token.
    INLINE static float* row(const Tensor& t, int64_t token, int64_t head) {
        return reinterpret_cast<float*>(t.data + token * t.stride[0] + head * t.stride[1]);
    }

    bool check(Worker& worker) const {
        if (!key_heads || heads % key_heads) return refuse(worker, {"v", "other heads", "a multiple of the heads of k"});
        if (ring->shape[2] != ring_width()) return refuse(worker, {"ring", "other rows", "k, u and G of all heads"});
        return true;
    }
};

// A head's chunk in a thread's own memory. Rows, lanes and columns beyond those there hold anything.
struct HeadChunk {
    float* keys;    // k with positions in the lanes [K][16]
    float* u;       // [16][padded]
    float* added;   // u as it enters the state [16][padded]
    float* q;       // scaled [16][K]
    float* dots;    // with S, of k and then of q [32][padded]
    float* tree;    // of sums
    char* taken;    // a byte for every slot
    alignas(64) float gates[kChunk] = {};  // G
    alignas(64) float k_weights[kChunk][kChunk], q_weights[kChunk][kChunk];  // e^(G_t - G_s) (x_t . k_s)

    HeadChunk(const Scan& a, char* scratch) {
        float* at = reinterpret_cast<float*>(scratch);
        keys = at, at += kChunk * a.key_dim;
        u = at, at += kChunk * a.padded;
        added = at, at += kChunk * a.padded;
        q = at, at += kChunk * a.key_dim;
        dots = at, at += 2 * kChunk * a.padded;
        tree = at, at += tree_levels(a.key_dim) * kStateRows * a.padded;
        taken = reinterpret_cast<char*>(at);
    }
    static size_t bytes(const Scan& a) {
        const int64_t floats = 2 * kChunk * a.key_dim + (4 * kChunk + tree_levels(a.key_dim) * kStateRows) * a.padded;
        return size_t(floats * 4 + a.state->shape[0]);
    }
};

// One head of one sequence.
struct Head {
    int64_t slot, h, key_head;
    float* state;  // [K, V]
};

// One number of each of up to 16 tokens [T, H] in the lanes.
INLINE F token_lanes(const Tensor& t, int64_t row, int64_t count, int64_t h) {
    alignas(64) float lane[kChunk] = {};
    for (int64_t i = 0; i < count; i++) memcpy(lane + i, t.data + (row + i) * t.stride[0] + h * 4, 4);
    return load(lane);
}

INLINE void put_key(HeadChunk& chunk, const float* k, int64_t key_dim, int64_t s) {
    for (int64_t d = 0; d < key_dim; d++) chunk.keys[d * kChunk + s] = k[d];
}

// What the ring holds of a chunk that has begun.
inline void load_chunk(const Scan& a, const Head& head, HeadChunk& chunk, int64_t num_rows) {
    for (int64_t s = 0; s < num_rows; s++) {
        put_key(chunk, a.ring_row(head.slot, s) + head.key_head * a.key_dim, a.key_dim, s);
        memcpy(chunk.u + s * a.padded, a.ring_u(head.slot, s, head.h), size_t(a.width) * 4);
        chunk.gates[s] = a.ring_gate(head.slot, s, head.h);
    }
}

// u and G of rows that came since the boundary; k is written by `store_keys`, once for all heads that share it.
inline void store_chunk(const Scan& a, const Head& head, const HeadChunk& chunk, int64_t first, int64_t stop) {
    for (int64_t s = first; s < stop; s++) {
        memcpy(a.ring_u(head.slot, s, head.h), chunk.u + s * a.padded, size_t(a.width) * 4);
        a.ring_gate(head.slot, s, head.h) = chunk.gates[s];
    }
}

// Lane s: x . k_s in head order, of all rows of the chunk.
INLINE F key_dots(const float* x, const float* keys, int64_t key_dim) {
    F tree[16];
    const int64_t num_runs = (key_dim + kHeadRun - 1) / kHeadRun;
    for (int64_t run = 0; run < num_runs; run++) {
        F sum = zero();
        for (int64_t d = run * kHeadRun, stop = least(d + kHeadRun, key_dim); d < stop; d++)
            sum = sum + set(x[d]) * load(keys + d * kChunk);
        int level = 0;
        for (int64_t bits = run; bits & 1; bits >>= 1, level++) sum = tree[level] + sum;
        tree[level] = sum;
    }
    F sum = zero();
    int level = 0;
    for (int64_t bits = num_runs; bits; bits >>= 1, level++)
        if (bits & 1) sum = tree[level] + sum;
    return sum;
}

INLINE void put_weights(const float* x, const HeadChunk& chunk, int64_t key_dim, int64_t t, float* weights) {
    const F decays = exp_not_positive(settle(set(chunk.gates[t]) - load(chunk.gates)));
    store(weights, settle(decays * settle(key_dots(x, chunk.keys, key_dim))));
}

INLINE F against_state(const float* dots, float decay) { return settle(set(decay) * settle(load(dots))); }

// The state at the chunk's end.
inline void move_on(const Scan& a, const Head& head, HeadChunk& chunk) {
    alignas(64) float decays[kChunk];
    store(decays, exp_not_positive(settle(set(chunk.gates[kChunk - 1]) - load(chunk.gates))));
    for (int s = 0; s < kChunk; s++)
        for (int64_t c = 0; c < a.padded; c += 16)
            store(chunk.added + s * a.padded + c, settle(set(decays[s]) * load(chunk.u + s * a.padded + c)));
    const float fade = first(exp_not_positive(set(chunk.gates[kChunk - 1])));
    move_state(head.state, a.key_dim, a.width, fade, chunk.keys, chunk.added);
}

// Tokens row .. row + count - 1, which are rows `start` and after of the chunk.
template <class Rule>
inline void add_rows(const Rule& rule, const Scan& a, const Head& head, HeadChunk& chunk, int64_t start, int64_t row,
                     int64_t count) {
    alignas(64) float gates[kChunk], factors[kChunk], decays[kChunk];
    F gate, factor;
    rule.gates(head.h, row, count, gate, factor);
    store(gates, gate);
    store(factors, factor);
    const float* rows[2 * kChunk];
    const float** q_rows = rows + (Rule::kHasDelta ? count : 0);
    float total = start ? chunk.gates[start - 1] : 0.0f;
    for (int64_t i = 0; i < count; i++) {
        total = chunk.gates[start + i] = settle(total + gates[i]);
        rows[i] = Scan::row(*a.k, row + i, head.key_head);
        put_key(chunk, rows[i], a.key_dim, start + i);
    }
    for (int64_t i = 0; i < count; i++) {
        q_rows[i] = Scan::row(*a.q, row + i, head.key_head);
        if constexpr (Rule::kHasDelta) {
            float* scaled = chunk.q + i * a.key_dim;
            map_row([&](F x) { return settle(x * set(a.scale)); }, q_rows[i], scaled, a.key_dim);
            q_rows[i] = scaled;
            put_weights(rows[i], chunk, a.key_dim, start + i, chunk.k_weights[i]);
        }
        put_weights(q_rows[i], chunk, a.key_dim, start + i, chunk.q_weights[i]);
    }
    store(decays, exp_not_positive(load(chunk.gates)));
    state_dots(rows, Rule::kHasDelta ? 2 * count : count, head.state, a.key_dim, a.width, chunk.tree, chunk.dots);
    const float* q_dots = chunk.dots + (Rule::kHasDelta ? count : 0) * a.padded;
    for (int64_t c = 0; c < a.padded; c += 16) {
        const int n = int(least(16, a.width - c));
        for (int64_t i = 0; i < count; i++) {
            const int64_t t = start + i;
            const F v = load_partial(Scan::row(*a.v, row + i, head.h) + c, n);
            F rest = v;
            if constexpr (Rule::kHasDelta) {
                rest = v - against_state(chunk.dots + i * a.padded + c, decays[t]);
                for (int64_t s = 0; s < t; s++)
                    rest = rest - set(chunk.k_weights[i][s]) * load(chunk.u + s * a.padded + c);
            }
            store(chunk.u + t * a.padded + c, settle(set(factors[i]) * settle(rest)));
            F out = against_state(q_dots + i * a.padded + c, decays[t]);
            for (int64_t s = 0; s <= t; s++) out = out + set(chunk.q_weights[i][s]) * load(chunk.u + s * a.padded + c);
            store_partial(Scan::row(*a.out, row + i, head.h) + c, rule.output(head.h, settle(out), v), n);
        }
    }
    if (start + count == kChunk) move_on(a, head, chunk);
}

template <class Rule>
inline void scan_head(const Rule& rule, const Scan& a, const Run& run, int64_t h, HeadChunk& chunk) {
    const int64_t state_size = a.key_dim * a.width;
    const Head head{run.slot, h, a.key_head(h), a.state->as<float>() + (run.slot * a.heads + h) * state_size};
    if (run.first == 0) memset(head.state, 0, size_t(state_size) * 4);
    load_chunk(a, head, chunk, run.first % kChunk);
    int64_t at = run.first;
    while (at < run.stop()) {
        const int64_t start = at % kChunk, count = least(kChunk - start, run.stop() - at);
        add_rows(rule, a, head, chunk, start, run.row + at - run.first, count);
        at += count;
    }
    store_chunk(a, head, chunk, most(run.first, run.boundary()) % kChunk, run.stop() % kChunk);
}

// k of the rows that came since the boundary, all heads of a run.
inline void store_keys(const Scan& a, const Run& run) {
    for (int64_t at = most(run.first, run.boundary()); at < run.stop(); at++)
        for (int64_t h = 0; h < a.key_heads; h++)
            memcpy(a.ring_row(run.slot, at % kChunk) + h * a.key_dim, Scan::row(*a.k, run.row + at - run.first, h),
                   size_t(a.key_dim) * 4);
}

// Whether a run reads rows of the ring that it writes anew.
INLINE bool turns_ring_over(const Run& run) {
    return run.count && run.first % kChunk && run.boundary() > run.first && run.stop() % kChunk;
}

template <class Rule>
inline void run_scan(const Rule& rule, const Scan& a, const Runs& runs, Worker& worker) {
    if (!a.check(worker)) return;
    HeadChunk chunk(a, worker.scratch);
    if (!runs.check(a.state->shape[0], chunk.taken, worker)) return;
    for (int64_t first, last; worker.claim(runs.num_sequences * a.heads, 1, first, last);) {
        const Run run = runs[first / a.heads];
        if (run.count) scan_head(rule, a, run, first % a.heads, chunk);
    }
    bool must_wait = false;  // heads that share k read it from the ring
    for (int64_t b = 0; b < runs.num_sequences; b++) must_wait |= turns_ring_over(runs[b]);
    if (must_wait) worker.barrier();
    int64_t first, last;
    worker.share(runs.num_sequences, first, last);
    for (int64_t b = first; b < last; b++)
        if (runs[b].count) store_keys(a, runs[b]);
}

}  // namespace samebits::SAMEBITS_ISA
