#pragma once
#include <cstddef>

namespace samebits {

// Bytes per second at which `threads` threads read a buffer of this size, the best of several passes.
double read_bandwidth(size_t num_bytes, int threads);

}  // namespace samebits
