// The native part of samebits. So far: what the CPU at hand can do, as kernel selection will ask.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include <map>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace {

#if defined(__x86_64__)
// Leaf 7 carries what compilers' builtin checks of this age do not name: AMX and AVX-VNNI.
std::map<std::string, bool> cpu_features() {
    unsigned a = 0, b = 0, c = 0, d = 0, a1 = 0, b1 = 0, c1 = 0, d1 = 0;
    const bool has_leaf_7 = __get_cpuid_count(7, 0, &a, &b, &c, &d);
    const bool has_leaf_7_1 = has_leaf_7 && a >= 1 && __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1);
    __builtin_cpu_init();
    return {
        {"avx2", __builtin_cpu_supports("avx2") != 0},
        {"fma", __builtin_cpu_supports("fma") != 0},
        {"f16c", __builtin_cpu_supports("f16c") != 0},
        {"avx512f", __builtin_cpu_supports("avx512f") != 0},
        {"avx512vnni", __builtin_cpu_supports("avx512vnni") != 0},
        {"avx_vnni", has_leaf_7_1 && ((a1 >> 4) & 1) != 0},
        {"amx_int8", has_leaf_7 && ((d >> 25) & 1) != 0},
    };
}
#elif defined(__aarch64__)
std::map<std::string, bool> cpu_features() { return {{"neon", true}}; }
#else
std::map<std::string, bool> cpu_features() { return {}; }
#endif

}  // namespace

NB_MODULE(_native, m) {
    m.def("cpu_features", &cpu_features, "Instruction sets of this CPU that kernels may use, by name.");
}
