#include "isa.h"

#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace samebits {

extern const OpTable scalar_table;
#if defined(__x86_64__)
extern const OpTable avx512_table, avx2_table, avx2_vnni_table;
#elif defined(__aarch64__)
extern const OpTable neon_table;
#endif

#if defined(__x86_64__)
// Leaf 7 carries what compilers' builtin checks of this age do not name: AMX and AVX-VNNI.
std::vector<CpuFeature> cpu_features() {
    unsigned a = 0, b = 0, c = 0, d = 0, a1 = 0, b1 = 0, c1 = 0, d1 = 0;
    const bool has_leaf_7 = __get_cpuid_count(7, 0, &a, &b, &c, &d);
    const bool has_leaf_7_1 = has_leaf_7 && a >= 1 && __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1);
    __builtin_cpu_init();
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return {
        {"avx2", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")},
        {"avx_vnni", has_leaf_7_1 && ((a1 >> 4) & 1) != 0},
        {"avx512", avx512},
        {"avx512_vnni", avx512 && __builtin_cpu_supports("avx512vnni")},
        {"amx_int8", has_leaf_7 && ((d >> 25) & 1) != 0 && ((d >> 24) & 1) != 0},
    };
}
#elif defined(__aarch64__)
std::vector<CpuFeature> cpu_features() { return {{"neon", true}}; }
#else
std::vector<CpuFeature> cpu_features() { return {}; }
#endif

std::vector<const OpTable*> available_tables() {
    std::vector<const OpTable*> tables;
    auto has = [](const char* name) {
        for (const CpuFeature& feature : cpu_features())
            if (std::string(name) == feature.name) return feature.present;
        return false;
    };
    (void)has;
#if defined(__x86_64__)
    if (has("avx512_vnni")) tables.push_back(&avx512_table);
#endif
    tables.push_back(&scalar_table);
    return tables;
}

const OpTable& table_named(const std::string& isa) {
    for (const OpTable* table : available_tables())
        if (isa == table->isa) return *table;
    throw std::invalid_argument("no instruction set " + isa + " here");
}

}  // namespace samebits
