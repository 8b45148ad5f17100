// Memory of a recurrence: the tensors of a call, the ring of a slot, and a chunk in a thread's own memory.
#pragma once
#include "recurrence_state.h"

namespace samebits::SAMEBITS_ISA {

// One number of each of up to 16 tokens [T, H] in the lanes.
INLINE F token_lanes(const Tensor& t, int64_t row, int64_t count, int64_t h) {
    alignas(64) float lane[kChunk] = {};
    for (int64_t i = 0; i < count; i++) memcpy(lane + i, t.data + (row + i) * t.stride[0] + h * 4, 4);
    return load(lane);
}

// The tensors of a call: q and k [T, Hk, K], v and out [T, H, V], state [N, H, K, V], ring [N, 16, W].
struct Scan {
    const Tensor *q, *k, *v, *out, *state, *ring;
    float scale;
    bool is_tiled;
    int64_t key_heads, key_dim, heads, width, padded;  // padded: the width V in whole vectors

    Scan(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& state, const Tensor& ring,
         float scale, bool is_tiled)
        : q(&q), k(&k), v(&v), out(&out), state(&state), ring(&ring), scale(scale), is_tiled(is_tiled),
          key_heads(q.shape[1]), key_dim(q.shape[2]), heads(v.shape[1]), width(v.shape[2]),
          padded(round_up(width, 16)) {}

    // The j-th head of v with this head of k.
    INLINE int64_t head(int64_t key_head, int64_t j) const {
        return is_tiled ? j * key_heads + key_head : key_head * (heads / key_heads) + j;
    }
    INLINE float* state_of(int64_t slot, int64_t h) const {
        return state->as<float>() + (slot * heads + h) * key_dim * width;
    }
    INLINE int64_t ring_width() const { return key_heads * key_dim + heads * width + heads; }
    INLINE float* ring_row(int64_t slot, int64_t s) const {
        return ring->as<float>() + (slot * kChunk + s) * ring_width();
    }
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
        if (!key_heads || heads % key_heads)
            return refuse(worker, {"v", "other heads", "a multiple of the heads of k"});
        if (ring->shape[2] != ring_width()) return refuse(worker, {"ring", "other rows", "k, u and G of all heads"});
        return true;
    }
};

// A chunk in a thread's own memory: what heads with one k share, and then one of them at a time. Rows, lanes and
// columns beyond those there hold anything.
struct Chunk {
    float* keys;   // k with positions in the lanes [K][16]
    float* q;      // scaled, of the rows that are added [16][K]
    float* u;      // [16][padded]
    float* added;  // u as it enters the state [16][padded]
    float* dots;   // x_t . S [32][padded]
    float* tree;   // of sums
    char* taken;   // a byte for every slot
    const float* rows[2 * kChunk];                   // what meets S: k if there is a delta, then q
    alignas(64) float gates[kChunk] = {};            // G
    alignas(64) float key_dots[2 * kChunk][kChunk];  // of the same rows: x_t . k_s
    alignas(64) float weights[2 * kChunk][kChunk];   // e^(G_t - G_s) times them, settled

    Chunk(const Scan& a, char* scratch) {
        float* at = reinterpret_cast<float*>(scratch);
        keys = at, at += kChunk * a.key_dim;
        q = at, at += kChunk * a.key_dim;
        u = at, at += kChunk * a.padded;
        added = at, at += kChunk * a.padded;
        dots = at, at += 2 * kChunk * a.padded;
        tree = at, at += tree_floats(a);
        taken = reinterpret_cast<char*>(at);
    }
    // Sums go over columns of the state, and over the positions of a chunk: its keys.
    static int64_t tree_floats(const Scan& a) {
        return tree_levels(a.key_dim) * kStateRows * most(a.padded, kChunk);
    }
    static size_t bytes(const Scan& a) {
        const int64_t floats = 2 * kChunk * a.key_dim + 4 * kChunk * a.padded + tree_floats(a);
        return size_t(floats * 4 + a.state->shape[0]);
    }
    INLINE void put_key(const float* k, int64_t key_dim, int64_t s) {
        for (int64_t d = 0; d < key_dim; d++) keys[d * kChunk + s] = k[d];
    }
};

// Tokens row .. row + count - 1 of a run, which are rows `start` and after of their chunk.
struct Piece {
    int64_t slot, start, row, count;

    INLINE int64_t stop() const { return start + count; }
};

// u and G of one head in the ring; k is written by `store_keys`, once for all heads that share it.
INLINE void load_rows(const Scan& a, const Piece& piece, int64_t h, Chunk& chunk) {
    for (int64_t s = 0; s < piece.start; s++) {
        memcpy(chunk.u + s * a.padded, a.ring_u(piece.slot, s, h), size_t(a.width) * 4);
        chunk.gates[s] = a.ring_gate(piece.slot, s, h);
    }
}
INLINE void store_rows(const Scan& a, const Piece& piece, int64_t h, const Chunk& chunk) {
    for (int64_t s = piece.start; s < piece.stop(); s++) {
        memcpy(a.ring_u(piece.slot, s, h), chunk.u + s * a.padded, size_t(a.width) * 4);
        a.ring_gate(piece.slot, s, h) = chunk.gates[s];
    }
}

}  // namespace samebits::SAMEBITS_ISA
