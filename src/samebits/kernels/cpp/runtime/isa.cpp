#include "isa.h"

#include <cstring>
#include <initializer_list>
#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace samebits {

extern const OpTable scalar_table;

#if defined(__x86_64__)
extern const OpTable avx512_table, avx2_vnni_table, avx2_table;

namespace {

struct Registers {
    unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
    Registers r;
    __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
    return r;
}

bool has_bits(uint64_t word, std::initializer_list<int> bits) {
    for (int bit : bits)
        if (!((word >> bit) & 1)) return false;
    return true;
}

// XCR0: the register states the operating system saves. A CPU's instructions without their state are of no use.
uint64_t saved_states() {
    if (!has_bits(cpuid(1, 0).c, {27})) return 0;  // OSXSAVE
    unsigned low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return uint64_t(high) << 32 | low;
}

}  // namespace

std::vector<CpuFeature> cpu_features() {
    const Registers basic = cpuid(1, 0), extended = cpuid(7, 0);
    const Registers later = extended.a >= 1 ? cpuid(7, 1) : Registers{};
    const uint64_t saved = saved_states();
    const bool ymm = has_bits(saved, {1, 2}), zmm = ymm && has_bits(saved, {5, 6, 7});
    const bool avx2 = ymm && has_bits(basic.c, {12, 28, 29}) && has_bits(extended.b, {5});  // FMA, AVX, F16C; AVX2
    const bool avx512 = avx2 && zmm && has_bits(extended.b, {16, 17, 30, 31});              // F, DQ, BW, VL
    return {
        {"avx2", avx2},
        {"avx_vnni", avx2 && has_bits(later.a, {4})},
        {"avx512", avx512},
        {"avx512_vnni", avx512 && has_bits(extended.c, {11})},
        {"amx_int8", has_bits(saved, {17, 18}) && has_bits(extended.d, {24, 25})},  // TILE, INT8
    };
}
#elif defined(__aarch64__)
extern const OpTable sve256_table, neon_i8mm_table, neon_dotprod_table, neon_table;

#if defined(__linux__)
namespace {

// Bytes of the vectors of SVE: what the system has set for this thread and those it starts, not the most that the CPU has.
int sve_vector_bytes() {
    constexpr int kGetLength = 51, kLengthMask = 0xFFFF;  // PR_SVE_GET_VL, which older headers do not name
    const int answer = prctl(kGetLength);
    return answer < 0 ? 0 : answer & kLengthMask;
}

}  // namespace
#endif

std::vector<CpuFeature> cpu_features() {
    bool dotprod = false, i8mm = false, sve256 = false;
#if defined(__linux__)
    // HWCAP2_I8MM, HWCAP2_SVEI8MM and HWCAP_SVE, which older headers do not name
    constexpr unsigned long kI8mm = 1ul << 13, kSveI8mm = 1ul << 9, kSve = 1ul << 22;
    const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    dotprod = (first & HWCAP_ASIMDDP) != 0;
    i8mm = (second & kI8mm) != 0;
    sve256 = (first & kSve) && (second & kSveI8mm) && sve_vector_bytes() == 32;
#elif defined(__APPLE__)
    dotprod = true;  // every Apple CPU of this architecture
    int present = 0;
    size_t size = sizeof present;
    i8mm = !sysctlbyname("hw.optional.arm.FEAT_I8MM", &present, &size, nullptr, 0) && present;
#endif
    return {{"neon", true}, {"dotprod", dotprod}, {"i8mm", dotprod && i8mm}, {"sve256", dotprod && i8mm && sve256}};
}
#else
std::vector<CpuFeature> cpu_features() { return {}; }
#endif

namespace {

[[maybe_unused]] bool has_feature(const char* name) {
    for (const CpuFeature& feature : cpu_features())
        if (!strcmp(name, feature.name)) return feature.present;
    return false;
}

}  // namespace

std::vector<const OpTable*> available_tables() {
    std::vector<const OpTable*> tables;
#if defined(__x86_64__)
    if (has_feature("avx512_vnni")) tables.push_back(&avx512_table);
    if (has_feature("avx_vnni")) tables.push_back(&avx2_vnni_table);
    if (has_feature("avx2")) tables.push_back(&avx2_table);
#elif defined(__aarch64__)
#if defined(SAMEBITS_HAS_SVE256)
    if (has_feature("sve256")) tables.push_back(&sve256_table);
#endif
    if (has_feature("i8mm")) tables.push_back(&neon_i8mm_table);
    if (has_feature("dotprod")) tables.push_back(&neon_dotprod_table);
    tables.push_back(&neon_table);
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
