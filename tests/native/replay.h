// Cases of ops with the results that the reference gives, as native_cases.py wrote them, on native kernels.
#pragma once
#include <string>
#include <vector>

#include "runtime/op.h"
#include "runtime/pool.h"

struct StoredTensor {
    int format = -1;  // a Format; -1: absent
    samebits::Layout layout = samebits::Layout::row_major;  // that kernels like best
    float scale = 1;
    std::vector<int64_t> shape;
    std::string bytes;  // row-major
};

struct StoredCase {
    std::string name, op;
    std::vector<StoredTensor> inputs;
    std::vector<double> attrs;
    std::vector<int> written_into;  // for each result: the input it lies in, or -1
    std::vector<StoredTensor> results;
};

std::vector<StoredCase> read_cases(const char* path);

// Runs a case with all tensors row-major, or in the layouts that kernels like best. Says what is wrong, or nothing.
std::string replay(const StoredCase& c, const samebits::OpTable& table, samebits::Team& team, bool as_kernels_like);
