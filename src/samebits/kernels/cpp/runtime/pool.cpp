#include "pool.h"

#include <cstdlib>
#include <new>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace samebits {

namespace {

constexpr int kSpinsBeforeYield = 2000;   // a barrier inside a step is short
constexpr int kSpinsBeforeSleep = 20000;  // about 100 us: the time between two steps of a decode

void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

size_t aligned(size_t n) { return (n + 63) / 64 * 64; }

}  // namespace

void Worker::barrier() { team->barrier(); }

bool Worker::halted() const { return team->halted_; }

bool Worker::claim(int64_t total, int64_t size, int64_t& first, int64_t& last) {
    auto& next = team->claimed_[team->generation_.load(std::memory_order_relaxed) & 1];
    first = next.fetch_add(size, std::memory_order_relaxed);
    if (first >= total) return false;
    last = first + size < total ? first + size : total;
    return true;
}

void Worker::fail(const Failure& failure) {
    std::lock_guard<std::mutex> lock(team->failure_mutex_);
    if (!team->failed_) team->failure_ = failure;
    team->failed_ = true;
}

Team::Team(int count) : workers_(count) {
    for (int id = 0; id < count; id++) {
        workers_[id].id = id;
        workers_[id].count = count;
        workers_[id].team = this;
    }
    for (int id = 1; id < count; id++) threads_.emplace_back([this, id] { loop(id); });
}

Team::~Team() {
    {
        std::lock_guard<std::mutex> lock(sleep_mutex_);
        stop_ = true;
        turn_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
    std::free(memory_);
}

void Team::reserve(size_t per_thread, size_t shared) {
    per_thread = aligned(per_thread);
    shared = aligned(shared);
    if (per_thread <= per_thread_ && shared <= shared_) return;
    per_thread_ = per_thread > per_thread_ ? per_thread : per_thread_;
    shared_ = shared > shared_ ? shared : shared_;
    std::free(memory_);
    memory_ = static_cast<char*>(std::aligned_alloc(64, shared_ + per_thread_ * workers_.size() + 64));
    if (!memory_) throw std::bad_alloc();
    for (auto& worker : workers_) {
        worker.shared = memory_;
        worker.scratch = memory_ + shared_ + per_thread_ * worker.id;
    }
}

void Team::start(Entry entry, void* context) {
    std::lock_guard<std::mutex> run(run_mutex_);
    failed_ = halted_ = false;
    entry_ = entry;
    context_ = context;
    if (!threads_.empty()) {
        turn_.fetch_add(1, std::memory_order_seq_cst);
        if (sleepers_.load(std::memory_order_seq_cst) > 0) {
            std::lock_guard<std::mutex> lock(sleep_mutex_);
            wake_.notify_all();
        }
    }
    entry(context, workers_[0]);
    barrier();
}

void Team::loop(int id) {
    uint32_t seen = 0;
    for (;;) {
        int spins = 0;
        while (turn_.load(std::memory_order_acquire) == seen) {
            relax();
            if (++spins < kSpinsBeforeSleep) continue;
            sleepers_.fetch_add(1, std::memory_order_seq_cst);
            std::unique_lock<std::mutex> lock(sleep_mutex_);
            wake_.wait(lock, [&] { return turn_.load(std::memory_order_seq_cst) != seen; });
            sleepers_.fetch_sub(1, std::memory_order_seq_cst);
        }
        seen = turn_.load(std::memory_order_acquire);
        if (stop_) return;
        entry_(context_, workers_[id]);
        barrier();
    }
}

void Team::barrier() {
    const uint32_t generation = generation_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count()) {
        arrived_.store(0, std::memory_order_relaxed);
        halted_ = failed_.load(std::memory_order_relaxed);
        claimed_[(generation + 1) & 1].store(0, std::memory_order_relaxed);
        generation_.store(generation + 1, std::memory_order_release);
        return;
    }
    for (int spins = 0; generation_.load(std::memory_order_acquire) == generation; spins++) {
        relax();
        if (spins > kSpinsBeforeYield) std::this_thread::yield();
    }
}

}  // namespace samebits
