// A number in memory that threads wait on until it changes: first looking at it, then asleep in the kernel.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#if !defined(__linux__)
#include <condition_variable>
#include <mutex>
#endif

namespace samebits {

using Nanoseconds = std::chrono::nanoseconds;
constexpr Nanoseconds kForever = Nanoseconds::max();

// How long a waiting thread stays awake. While `busy` it keeps its processor, then until `polite` it offers the processor to
// other threads between two looks, and after that it sleeps.
struct Patience {
    Nanoseconds busy, polite;
};

class WaitWord {
  public:
    uint32_t load() const { return word_.load(std::memory_order_acquire); }

    // Sets the number and wakes all threads that wait for a change.
    void store(uint32_t value) {
        word_.store(value, std::memory_order_seq_cst);
        wake();
    }

    // Does the same if the number is `expected`; returns whether it was.
    bool change(uint32_t expected, uint32_t value) {
        if (!word_.compare_exchange_strong(expected, value, std::memory_order_seq_cst)) return false;
        wake();
        return true;
    }

    // Waits while the number is `old`, at most for `limit`. Returns the time waited, 0 if it was too short to be measured.
    Nanoseconds wait(uint32_t old, Patience patience, Nanoseconds limit = kForever);

  private:
    // Either this thread sees the sleeper counted, or the sleeper sees the new number: both are sequentially consistent.
    void wake() {
        if (sleepers_.load(std::memory_order_seq_cst) > 0) wake_sleepers();
    }
    void wake_sleepers();
    void sleep(uint32_t old, Nanoseconds limit);

    std::atomic<uint32_t> word_{0};
    std::atomic<int> sleepers_{0};
#if !defined(__linux__)
    std::mutex mutex_;
    std::condition_variable changed_;
#endif
};

}  // namespace samebits
