// What a recurrence does with its state S [K, V], V in the lanes: products of rows with S, and S moved on by a chunk.
#pragma once
#include "slots.h"
#include "sums.h"

namespace samebits::SAMEBITS_ISA {

constexpr int kHeadPair = 2 * kHeadRun;
constexpr int kStateRows = kTile / 2, kMovedRows = 4;  // rows whose sums of 16 columns stay in registers
constexpr int64_t kPartColumns = 64;

// Levels of the adjacent-pair tree over the pairs of runs of a head.
INLINE int64_t tree_levels(int64_t key_dim) {
    int64_t levels = 1;
    while ((int64_t(kHeadPair) << (levels - 1)) < key_dim) levels++;
    return levels;
}

// Sums of R rows over one run of a head. A chain may start with its first product: only the sign of a zero differs.
template <int R>
INLINE void run_sums(const float* const* x, const float* state, int64_t width, int64_t d, int count, int n,
                     F (&sum)[R]) {
    const F s = load_partial(state + d * width, n);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) sum[r] = set(x[r][d]) * s;
#pragma GCC unroll 1
    for (int i = 1; i < count; i++) {
        prefetch(state + (d + i + kHeadPair) * width);  // the next pair: columns are walked before it
        const F s = load_partial(state + (d + i) * width, n);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) sum[r] = sum[r] + set(x[r][d + i]) * s;
    }
}

// The same over two runs, the lowest pair of the tree; the second may be short or missing.
template <int R>
INLINE void pair_sums(const float* const* x, const float* state, int64_t width, int64_t d, int count, int n,
                      F (&sum)[R]) {
    run_sums<R>(x, state, width, d, count < kHeadRun ? count : kHeadRun, n, sum);
    if (count <= kHeadRun) return;
    F second[R];
    run_sums<R>(x, state, width, d + kHeadRun, count - kHeadRun, n, second);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) sum[r] = sum[r] + second[r];
}

// R rows x [K] times `columns` of S [K, width] in head order into dots [R][padded]. S is read from its first row to its
// last: pairs of runs are joined in `tree` [levels][R][columns], where a sum waits on its level for the one beside it.
template <int R>
inline void state_dots_tile(const float* const* x, const float* state, int64_t key_dim, int64_t width, int64_t columns,
                            float* tree, float* dots) {
    const int64_t step = round_up(columns, 16), level_size = R * step, padded = round_up(width, 16);
    const int64_t num_pairs = (key_dim + kHeadPair - 1) / kHeadPair;
    for (int64_t pair = 0; pair < num_pairs; pair++) {
        const int64_t d = pair * kHeadPair, count = least(kHeadPair, key_dim - d);
        for (int64_t c = 0; c < columns; c += 16) {
            const int n = int(least(16, columns - c));
            F sum[R];
            if (count == kHeadPair && n == 16) pair_sums<R>(x, state + c, width, d, kHeadPair, 16, sum);
            else pair_sums<R>(x, state + c, width, d, int(count), n, sum);
            float* place = tree + c;
            for (int64_t bits = pair; bits & 1; bits >>= 1, place += level_size)
#pragma GCC unroll 8
                for (int r = 0; r < R; r++) sum[r] = load(place + r * step) + sum[r];
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) store(place + r * step, sum[r]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int64_t c = 0; c < step; c += 16) {  // what is left, from the last pairs to the first
            F sum = zero();
            const float* place = tree + r * step + c;
            for (int64_t bits = num_pairs; bits; bits >>= 1, place += level_size)
                if (bits & 1) sum = load(place) + sum;
            store(dots + r * padded + c, sum);
        }
}

template <int R = kStateRows>
inline void state_dots_rows(const float* const* x, int64_t num_rows, const float* state, int64_t key_dim, int64_t width,
                            int64_t columns, float* tree, float* dots) {
    const int64_t padded = round_up(width, 16);
    int64_t i = 0;
    for (; i + R <= num_rows; i += R)
        state_dots_tile<R>(x + i, state, key_dim, width, columns, tree, dots + i * padded);
    if constexpr (R > 1)
        state_dots_rows<R / 2>(x + i, num_rows - i, state, key_dim, width, columns, tree, dots + i * padded);
}

// All rows times S. Many rows take a part of the columns at a time, which stays in the nearest cache.
inline void state_dots(const float* const* x, int64_t num_rows, const float* state, int64_t key_dim, int64_t width,
                       float* tree, float* dots) {
    const int64_t part = num_rows <= kStateRows ? width : kPartColumns;
    for (int64_t c = 0; c < width; c += part)
        state_dots_rows(x, num_rows, state + c, key_dim, width, least(part, width - c), tree, dots + c);
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
#pragma GCC unroll 1
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
inline void move_state(float* state, int64_t key_dim, int64_t width, float fade, const float* keys,
                       const float* added) {
    int64_t d = 0;
    for (; d + kMovedRows <= key_dim; d += kMovedRows)
        move_rows<kMovedRows>(state + d * width, width, set(fade), keys + d * kChunk, added);
    for (; d < key_dim; d++) move_rows<1>(state + d * width, width, set(fade), keys + d * kChunk, added);
}

}  // namespace samebits::SAMEBITS_ISA
