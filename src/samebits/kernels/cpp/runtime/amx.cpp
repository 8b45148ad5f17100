#include "amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace samebits {

#if defined(__x86_64__) && defined(__linux__)
namespace {

constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA

bool request() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    const bool has_tiles = (d >> 24) & 1, has_int8 = (d >> 25) & 1;
    return has_tiles && has_int8 && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool enable_amx() {
    static const bool allowed = request();
    return allowed;
}
#else
bool enable_amx() { return false; }
#endif

}  // namespace samebits
