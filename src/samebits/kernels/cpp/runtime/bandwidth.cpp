#include "bandwidth.h"

#include <chrono>
#include <cstring>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "aligned_memory.h"
#include "isa.h"
#include "pool.h"

namespace samebits {

double read_bandwidth(size_t num_bytes, int threads) {
    constexpr size_t kHugePage = size_t(1) << 21, kUnit = 256;
    constexpr double kSeconds = 0.5;
    const size_t units = num_bytes / kUnit, bytes = (num_bytes + kHugePage - 1) / kHugePage * kHugePage;
    if (units == 0) return 0;
    char* memory = allocate_aligned(kHugePage, bytes + kHugePage);
#if defined(__linux__)
    madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    std::memset(memory, 1, bytes);
    const OpTable& table = *available_tables().front();
    Team team(threads);
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    double best = 0;
    volatile int64_t sink = 0;
    do {
        const auto before = Clock::now();
        team.run([&](Worker& worker) {
            int64_t first, last;
            worker.share(int64_t(units), first, last);
            const int64_t sum = table.read_all(memory + size_t(first) * kUnit, size_t(last - first) * kUnit);
            if (sum == 42) sink = sum;  // so that nothing is left out
        });
        const double seconds = std::chrono::duration<double>(Clock::now() - before).count();
        if (double(units * kUnit) / seconds > best) best = double(units * kUnit) / seconds;
    } while (std::chrono::duration<double>(Clock::now() - start).count() < kSeconds);
    free_aligned(memory);
    return best;
}

}  // namespace samebits
