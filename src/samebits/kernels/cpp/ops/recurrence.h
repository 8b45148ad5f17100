// The row form of a linear recurrence with decay (ops/recurrence.py). A rule says what gates and u are made of:
//   kHasDelta   whether u needs k . S
//   gates       g, and what u is multiplied by, of some tokens
//   output      what becomes of a settled output
#pragma once
#include "elementary.h"
#include "recurrence_chunk.h"
#include "rows.h"

namespace samebits::SAMEBITS_ISA {

// Rows of a piece that meet S: k if there is a delta, then q.
template <class Rule>
INLINE int64_t num_rows(const Piece& piece) {
    return Rule::kHasDelta ? 2 * piece.count : piece.count;
}
template <class Rule>
INLINE int64_t first_q(const Piece& piece) {
    return Rule::kHasDelta ? piece.count : 0;
}

// What heads with one k share of a piece: keys, scaled q, and their products.
template <class Rule>
inline void prepare(const Scan& a, const Piece& piece, int64_t key_head, Chunk& chunk) {
    const float** q_rows = chunk.rows + first_q<Rule>(piece);
    for (int64_t i = 0; i < piece.count; i++) {
        const float *k = Scan::row(*a.k, piece.row + i, key_head), *q = Scan::row(*a.q, piece.row + i, key_head);
        chunk.put_key(k, a.key_dim, piece.start + i);
        if constexpr (Rule::kHasDelta) {
            float* scaled = chunk.q + i * a.key_dim;
            map_row([&](F x) { return settle(x * set(a.scale)); }, q, scaled, a.key_dim);
            chunk.rows[i] = k;
            q = scaled;
        }
        q_rows[i] = q;
    }
    state_dots(chunk.rows, num_rows<Rule>(piece), chunk.keys, a.key_dim, kChunk, chunk.tree, chunk.key_dots[0]);
}

INLINE F against_state(const float* dots, float decay) { return settle(set(decay) * settle(load(dots))); }

// Columns c and after of u and of the outputs; weights e^(G_t - G_s) (x_t . k_s), decays e^G_t.
template <class Rule>
INLINE void add_columns(const Rule& rule, const Scan& a, const Piece& piece, int64_t h, Chunk& chunk, int64_t c,
                        const float* factors, const float* decays) {
    const int n = int(least(16, a.width - c));
    const float *k_dots = chunk.dots + c, *q_dots = k_dots + first_q<Rule>(piece) * a.padded;
    const auto *weights = chunk.weights, *q_weights = weights + first_q<Rule>(piece);
    float* u = chunk.u + c;
    for (int64_t i = 0; i < piece.count; i++) {
        const int64_t t = piece.start + i;
        const F v = load_partial(Scan::row(*a.v, piece.row + i, h) + c, n);
        F rest = v, out = against_state(q_dots + i * a.padded, decays[i]);
        if constexpr (Rule::kHasDelta) rest = v - against_state(k_dots + i * a.padded, decays[i]);
        for (int64_t s = 0; s < t; s++) {
            const F before = load(u + s * a.padded);
            if constexpr (Rule::kHasDelta) rest = rest - set(weights[i][s]) * before;
            out = out + set(q_weights[i][s]) * before;
        }
        const F own = settle(set(factors[i]) * (Rule::kHasDelta ? settle(rest) : rest));
        store(u + t * a.padded, own);
        out = out + set(q_weights[i][t]) * own;
        store_partial(Scan::row(*a.out, piece.row + i, h) + c, rule.output(h, settle(out), v), n);
    }
}

// S at the chunk's end.
inline void move_on(const Scan& a, float* state, Chunk& chunk) {
    alignas(64) float decays[kChunk];
    store(decays, exp_not_positive(settle(set(chunk.gates[kChunk - 1]) - load(chunk.gates))));
    for (int s = 0; s < kChunk; s++)
        for (int64_t c = 0; c < a.padded; c += 16)
            store(chunk.added + s * a.padded + c, settle(set(decays[s]) * load(chunk.u + s * a.padded + c)));
    const float fade = first(exp_not_positive(set(chunk.gates[kChunk - 1])));
    move_state(state, a.key_dim, a.width, fade, chunk.keys, chunk.added);
}

// G of the rows of a piece, from that of the row before; gates holds g.
INLINE void sum_gates(const Piece& piece, const float* gates, Chunk& chunk) {
    float total = piece.start ? chunk.gates[piece.start - 1] : 0.0f;
    for (int64_t i = 0; i < piece.count; i++) total = chunk.gates[piece.start + i] = settle(total + gates[i]);
}

// Values and outputs of a head, whose rows lie far apart, while the products with S are made.
INLINE void fetch_rows(const Scan& a, const Piece& piece, int64_t h) {
    for (int64_t i = 0; i < piece.count; i++)
        for (int64_t c = 0; c < a.width; c += 16) {
            prefetch(Scan::row(*a.v, piece.row + i, h) + c);
            prefetch(Scan::row(*a.out, piece.row + i, h) + c);
        }
}

// One head's outputs; its state moves on if the piece fills the chunk.
template <class Rule>
inline void add_rows(const Rule& rule, const Scan& a, const Piece& piece, int64_t h, Chunk& chunk) {
    alignas(64) float gates[kChunk], factors[kChunk], decays[kChunk];
    F gate, factor;
    rule.gates(h, piece.row, piece.count, gate, factor);
    store(gates, gate);
    store(factors, factor);
    sum_gates(piece, gates, chunk);
    const F all_gates = load(chunk.gates);
    for (int64_t i = 0; i < piece.count; i++) {
        const float own = chunk.gates[piece.start + i];
        const F between = exp_not_positive(settle(set(own) - all_gates));
        const int64_t q = first_q<Rule>(piece) + i;
        if (Rule::kHasDelta) store(chunk.weights[i], settle(between * settle(load(chunk.key_dots[i]))));
        store(chunk.weights[q], settle(between * settle(load(chunk.key_dots[q]))));
        decays[i] = own;
    }
    store(decays, exp_not_positive(load_partial(decays, int(piece.count))));
    fetch_rows(a, piece, h);
    float* state = a.state_of(piece.slot, h);
    state_dots(chunk.rows, num_rows<Rule>(piece), state, a.key_dim, a.width, chunk.tree, chunk.dots);
    for (int64_t c = 0; c < a.width; c += 16) add_columns(rule, a, piece, h, chunk, c, factors, decays);
    if (piece.stop() == kChunk) move_on(a, state, chunk);
}

// Some heads with one k of a run: from the `first`-th of them to before the `last`-th.
template <class Rule>
inline void scan_heads(const Rule& rule, const Scan& a, const Run& run, int64_t key_head, int64_t first, int64_t last,
                       Chunk& chunk) {
    for (int64_t j = first; j < last && run.first == 0; j++)
        memset(a.state_of(run.slot, a.head(key_head, j)), 0, size_t(a.key_dim * a.width) * 4);
    for (int64_t s = 0; s < run.first % kChunk; s++)
        chunk.put_key(a.ring_row(run.slot, s) + key_head * a.key_dim, a.key_dim, s);
    for (int64_t at = run.first; at < run.stop();) {
        const int64_t start = at % kChunk, row = run.row + at - run.first;
        const Piece piece{run.slot, start, row, least(kChunk - start, run.stop() - at)};
        prepare<Rule>(a, piece, key_head, chunk);
        for (int64_t j = first; j < last; j++) {
            const int64_t h = a.head(key_head, j);
            load_rows(a, piece, h, chunk);
            add_rows(rule, a, piece, h, chunk);
            if (piece.stop() < kChunk) store_rows(a, piece, h, chunk);
        }
        at += piece.count;
    }
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

// Threads take heads with one k together, so that what these share is made once, but leave each other enough to do.
INLINE int64_t heads_per_unit(const Scan& a, int64_t num_sequences, int num_threads) {
    const int64_t wanted = num_sequences * a.heads / (4 * num_threads);
    return most(1, least(wanted, a.heads / a.key_heads));
}

template <class Rule>
inline void run_scan(const Rule& rule, const Scan& a, const Runs& runs, Worker& worker) {
    if (!a.check(worker)) return;
    Chunk chunk(a, worker.scratch);
    if (!runs.check(a.state->shape[0], chunk.taken, worker)) return;
    const int64_t share = a.heads / a.key_heads, together = heads_per_unit(a, runs.num_sequences, worker.count);
    const int64_t parts = (share + together - 1) / together, units = a.key_heads * parts;
    for (int64_t unit, after; worker.claim(runs.num_sequences * units, 1, unit, after);) {
        const Run run = runs[unit / units];
        const int64_t key_head = unit % units / parts, first = unit % parts * together;
        if (run.count) scan_heads(rule, a, run, key_head, first, least(first + together, share), chunk);
    }
    bool must_wait = false;  // threads may still read k from the ring
    for (int64_t b = 0; b < runs.num_sequences; b++) must_wait |= turns_ring_over(runs[b]);
    if (must_wait) worker.barrier();
    int64_t first, last;
    worker.share(runs.num_sequences, first, last);
    for (int64_t b = first; b < last; b++)
        if (runs[b].count) store_keys(a, runs[b]);
}

}  // namespace samebits::SAMEBITS_ISA
