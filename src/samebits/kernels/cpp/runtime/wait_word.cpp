#include "wait_word.h"

#include <thread>

#if defined(__linux__)
#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace samebits {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLooks = 16;  // reading the clock takes as long as a few looks

void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

#if defined(__linux__)
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "the kernel compares the number itself");

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* limit) {
    return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation | FUTEX_PRIVATE_FLAG, value, limit, nullptr, 0);
}
#endif

}  // namespace

Nanoseconds WaitWord::wait(uint32_t old, Patience patience, Nanoseconds limit) {
    if (load() != old) return Nanoseconds(0);
    for (int i = 0; i < kLooks; i++) {
        relax();
        if (load() != old) return Nanoseconds(0);
    }
    const auto start = Clock::now();
    for (;;) {
        const Nanoseconds waited = Clock::now() - start;
        if (load() != old || waited >= limit) return waited;
        if (waited < patience.busy) {
            for (int i = 0; i < kLooks && load() == old; i++) relax();
        } else if (waited < patience.polite) {
            std::this_thread::yield();
        } else {
            sleep(old, limit == kForever ? limit : limit - waited);
        }
    }
}

#if defined(__linux__)

// The kernel compares the number once more before it lets the thread sleep. A signal ends the sleep early.
void WaitWord::sleep(uint32_t old, Nanoseconds limit) {
    constexpr int64_t kSecond = 1'000'000'000;
    const timespec left = {time_t(limit.count() / kSecond), long(limit.count() % kSecond)};
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    futex(word_, FUTEX_WAIT, old, limit == kForever ? nullptr : &left);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void WaitWord::wake_sleepers() { futex(word_, FUTEX_WAKE, INT_MAX, nullptr); }

#else

void WaitWord::sleep(uint32_t old, Nanoseconds limit) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    {
        const auto changed = [&] { return word_.load(std::memory_order_seq_cst) != old; };
        std::unique_lock<std::mutex> lock(mutex_);
        if (limit == kForever) {
            changed_.wait(lock, changed);
        } else {
            changed_.wait_for(lock, limit, changed);
        }
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void WaitWord::wake_sleepers() {
    { std::lock_guard<std::mutex> lock(mutex_); }  // a sleeper between its look and its sleep holds the mutex
    changed_.notify_all();
}

#endif

}  // namespace samebits
