// The reduction orders, stated literally. These scalar loops are what every kernel must match bit for bit.
#pragma once
#include <algorithm>
#include <vector>

using Sum = float (*)(const float*, int);

inline float chain(const float* t, int n) {
    float acc = 0;
    for (int i = 0; i < n; i++) acc += t[i];
    return acc;
}

inline float pair_tree(const float* t, int n) {  // adjacent pairs, padded with +0 to a power of two
    int width = 1;
    while (width < n) width *= 2;
    std::vector<float> v(width, 0.0f);
    std::copy(t, t + n, v.begin());
    for (; width > 1; width /= 2)
        for (int i = 0; i < width / 2; i++) v[i] = v[2 * i] + v[2 * i + 1];
    return v[0];
}

inline float fold_tree(const float* t, int n) {  // x[i] + x[i + n/2], halving, padded likewise
    int width = 1;
    while (width < n) width *= 2;
    std::vector<float> v(width, 0.0f);
    std::copy(t, t + n, v.begin());
    for (width /= 2; width >= 1; width /= 2)
        for (int i = 0; i < width; i++) v[i] = v[i] + v[i + width];
    return v[0];
}

inline float blocks8(const float* t, int n) {  // a chain inside each 8, block sums in order
    float acc = 0;
    for (int i = 0; i < n; i += 8) acc += chain(t + i, std::min(8, n - i));
    return acc;
}

inline float block_tree8(const float* t, int n) {  // a chain inside each 8, block sums by the pair tree
    std::vector<float> block;
    for (int i = 0; i < n; i += 8) block.push_back(chain(t + i, std::min(8, n - i)));
    return pair_tree(block.data(), block.size());
}

inline float runs16(const float* t, int n) {  // a chain inside each 16, run sums in order
    float acc = 0;
    for (int i = 0; i < n; i += 16) acc += chain(t + i, std::min(16, n - i));
    return acc;
}

inline float trees8(const float* t, int n) {  // a pair tree inside each 8, the tail padded with +0, trees in order
    float acc = 0;
    for (int i = 0; i < n; i += 8) {
        float v[8] = {};
        std::copy(t + i, t + std::min(i + 8, n), v);
        acc += ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
    }
    return acc;
}

inline float slots16(const float* t, int n) {  // slot j chains j, j+16, ...; slots in order
    float acc = 0;
    for (int j = 0; j < 16; j++) {
        float slot = 0;
        for (int i = j; i < n; i += 16) slot += t[i];
        acc += slot;
    }
    return acc;
}

inline float cuts256(const float* t, int n) {  // slots16 inside each 256, cuts in order
    float acc = 0;
    for (int i = 0; i < n; i += 256) acc += slots16(t + i, std::min(256, n - i));
    return acc;
}

inline float cut_runs256(const float* t, int n) {  // runs16 inside each 256, cuts in order
    float acc = 0;
    for (int i = 0; i < n; i += 256) acc += runs16(t + i, std::min(256, n - i));
    return acc;
}

inline float lanes256(const float* t, int n) {  // lane j chains j, j+256, ...; the 256 lane sums by slots16
    float lane[256] = {};
    for (int i = 0; i < n; i++) lane[i % 256] += t[i];
    return slots16(lane, 256);
}
