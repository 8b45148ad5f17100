// The instruction sets compiled in, and which of them this CPU has.
#pragma once
#include <string>
#include <vector>

#include "op.h"

namespace samebits {

// Tables this CPU can run, the fastest first; the scalar one is always there.
std::vector<const OpTable*> available_tables();
const OpTable& table_named(const std::string& isa);  // std::invalid_argument for one that is not available

struct CpuFeature {
    const char* name;
    bool present;
};
std::vector<CpuFeature> cpu_features();

}  // namespace samebits
