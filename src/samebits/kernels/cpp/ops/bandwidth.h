// Reading memory and nothing else: the ceiling that products with one token are measured against.
#pragma once
#include "base.h"

namespace samebits::SAMEBITS_ISA {

// A sum over n bytes, n a multiple of 256, that depends on every one of them.
inline int64_t read_all(const char* p, size_t n) {
    I sum[4] = {set(0), set(0), set(0), set(0)};
    for (size_t i = 0; i < n; i += 256)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            prefetch(p + i + 64 * j + 4096);
            sum[j] = sum[j] + load(reinterpret_cast<const int32_t*>(p + i + 64 * j));
        }
    alignas(64) int32_t lane[16];
    store(lane, (sum[0] + sum[1]) + (sum[2] + sum[3]));
    int64_t total = 0;
    for (int i = 0; i < 16; i++) total += lane[i];
    return total;
}

}  // namespace samebits::SAMEBITS_ISA
