// What a recurrence does with its state S [K, V], V in the lanes: products of rows with S, and S moved on by a chunk.
#pragma once
#include "slots.h"
#include "sums.h"

namespace samebits::SAMEBITS_ISA {

constexpr int kStateRows = kTile < 4 ? kTile : 4;  // rows whose sums of 16 columns stay in registers

// Levels of the adjacent-pair tree over the runs of a head.
INLINE int64_t tree_levels(int64_t key_dim) {
    int64_t levels = 1;
    while ((int64_t(kHeadRun) << (levels - 1)) < key_dim) levels++;
    return levels;
}

// Sums of R rows over one run of a head, columns c .. c + n - 1.
template <int R>
INLINE void run_sums(const float* const* x, const float* state, int64_t width, int64_t d, int count, int n, F (&sum)[R]) {
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) sum[r] = zero();
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) {
        const F s = load_partial(state + (d + i) * width, n);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) sum[r] = sum[r] + set(x[r][d + i]) * s;
    }
}

// R rows x [K] times S [K, width] in head order into dots [R][padded]. S is read once, from its first row to its last:
// runs are joined in `tree` [levels][R][padded], where a sum waits on its level for the one beside it.
template <int R>
inline void state_dots_tile(const float* const* x, const float* state, int64_t key_dim, int64_t width, float* tree,
                            float* dots) {
    const int64_t padded = round_up(width, 16), level_size = R * padded;
    const int64_t num_runs = (key_dim + kHeadRun - 1) / kHeadRun;
    for (int64_t run = 0; run < num_runs; run++) {
        const int64_t d = run * kHeadRun, count = least(kHeadRun, key_dim - d);
        for (int64_t c = 0; c < width; c += 16) {
            const int n = int(least(16, width - c));
            F sum[R];
            if (count == kHeadRun && n == 16) run_sums<R>(x, state + c, width, d, kHeadRun, 16, sum);
            else run_sums<R>(x, state + c, width, d, int(count), n, sum);
            float* place = tree + c;
            for (int64_t bits = run; bits & 1; bits >>= 1, place += level_size)
#pragma GCC unroll 8
                for (int r = 0; r < R; r++) sum[r] = load(place + r * padded) + sum[r];
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) store(place + r * padded, sum[r]);
        }
    }
    for (int64_t i = 0; i < level_size; i += 16) {  // what is left, from the last runs to the first
        F sum = zero();
        const float* place = tree + i;
        for (int64_t bits = num_runs; bits; bits >>= 1, place += level_size)
            if (bits & 1) sum = load(place) + sum;
        store(dots + i, sum);
    }
}

template <int R = kStateRows>
inline void state_dots(const float* const* x, int64_t num_rows, const float* state, int64_t key_dim, int64_t width,
                       float* tree, float* dots) {
    int64_t i = 0;
    for (; i + R <= num_rows; i += R)
        state_dots_tile<R>(x + i, state, key_dim, width, tree, dots + i * round_up(width, 16));
    if constexpr (R > 1)
        state_dots<R / 2>(x + i, num_rows - i, state, key_dim, width, tree, dots + i * round_up(width, 16));
}

// R rows of S times `fade`, then the rows of a chunk: k in `keys` [R][16], u in `added` [16][padded].
template <int R>
INLINE void move_rows(float* state, int64_t width, F fade, const float* keys, const float* added) {
    const int64_t padded = round_up(width, 16);
    for (int64_t c = 0; c < width; c += 16) {
        const int n = int(least(16, width - c));
        F sum[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) sum[r] = settle(fade * load_partial(state + r * width + c, n));
#pragma GCC unroll 4
        for (int s = 0; s < kChunk; s++) {
            const F u = load(added + s * padded + c);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) sum[r] = sum[r] + set(keys[r * kChunk + s]) * u;
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) store_partial(state + r * width + c, settle(sum[r]), n);
    }
}

// S [K, width] at a chunk's end: keys [K][16], added [16][padded].
inline void move_state(float* state, int64_t key_dim, int64_t width, float fade, const float* keys, const float* added) {
    int64_t d = 0;
    for (; d + kStateRows <= key_dim; d += kStateRows)
        move_rows<kStateRows>(state + d * width, width, set(fade), keys + d * kChunk, added);
    for (; d < key_dim; d++) move_rows<1>(state + d * width, width, set(fade), keys + d * kChunk, added);
}

}  // namespace samebits::SAMEBITS_ISA
