#include "pool.h"

#include <chrono>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "float_mode.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace samebits {

namespace {

using Nanoseconds = std::chrono::nanoseconds;

constexpr Nanoseconds kBusy{2'000};       // most barriers are shorter; and the thread waited for may need this core
constexpr Nanoseconds kAwake{1'000'000};  // longer than the time between two steps of a decode
constexpr Nanoseconds kForever{int64_t(1) << 62};

void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Waits until done() or for `limit`; busily at first, then letting other threads have the core. Returns done().
template <class Done>
bool watch(Done done, Nanoseconds limit) {
    if (done()) return true;
    for (const auto start = std::chrono::steady_clock::now();;) {
        for (int i = 0; i < 16; i++) {  // reading the clock takes as long as a few looks
            relax();
            if (done()) return true;
        }
        const Nanoseconds waited = std::chrono::steady_clock::now() - start;
        if (waited > limit) return false;
        if (waited > kBusy) std::this_thread::yield();
    }
}

size_t aligned(size_t n) { return (n + 63) / 64 * 64; }

}  // namespace

void Worker::barrier() { team->barrier(); }

bool Worker::halted() const { return team->halted_; }

bool Worker::claim(int64_t total, int64_t size, int64_t& first, int64_t& last) {
    first = team->claimed_.fetch_add(size, std::memory_order_relaxed);
    if (first >= total) return false;
    last = first + size < total ? first + size : total;
    return true;
}

bool Worker::claim_near(int64_t total, int64_t& unit) {
    for (int i = 0; i < count; i++) {
        const int thread = (id + i) % count;
        int64_t first, last;
        share_of(thread, total, first, last);
        std::atomic<int64_t>& taken = team->near_[thread].taken;
        if (i > 0 && first + taken.load(std::memory_order_relaxed) >= last) continue;
        unit = first + taken.fetch_add(1, std::memory_order_relaxed);
        if (unit < last) return true;
    }
    return false;
}

void Worker::fail(const Failure& failure) { team->note(*this, failure); }

Team::Team(int count) : workers_(count > 0 ? size_t(count) : throw std::invalid_argument("a team needs a thread")) {
    near_.reset(new Counter[size_t(count)]);
    for (int id = 0; id < count; id++) {
        workers_[id].id = id;
        workers_[id].count = count;
        workers_[id].team = this;
    }
    try {
        for (int id = 1; id < count; id++) threads_.emplace_back([this, id] { loop(id); });
    } catch (...) {  // the system has no more threads
        stop();
        throw;
    }
}

Team::~Team() {
    stop();
    std::free(memory_);
}

void Team::stop() {
    {
        std::lock_guard<std::mutex> lock(sleep_mutex_);
        stop_ = true;
        turn_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
}

void Team::reserve(size_t per_thread, size_t shared) {
    per_thread = aligned(per_thread);
    shared = aligned(shared);
    if (per_thread <= per_thread_ && shared <= shared_) return;
    if (per_thread < per_thread_) per_thread = per_thread_;
    if (shared < shared_) shared = shared_;
    char* memory = static_cast<char*>(std::aligned_alloc(64, shared + per_thread * workers_.size()));
    if (!memory) throw std::bad_alloc();
    std::free(memory_);
    memory_ = memory;
    per_thread_ = per_thread;
    shared_ = shared;
    for (auto& worker : workers_) {
        worker.shared = memory_;
        worker.scratch = memory_ + shared_ + per_thread_ * worker.id;
    }
}

void Team::start(Entry entry, void* context) {
    failed_ = halted_ = false;
    failed_call_ = -1;
    entry_ = entry;
    context_ = context;
    flushes_ = flushes_subnormals();
    if (!threads_.empty()) {
        // Either this sees the sleeper's count or the sleeper sees the turn: both are sequentially consistent.
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
    const auto called = [&] { return turn_.load(std::memory_order_acquire) != seen; };
    for (;;) {
        if (!watch(called, kAwake)) {
            sleepers_.fetch_add(1, std::memory_order_seq_cst);
            std::unique_lock<std::mutex> lock(sleep_mutex_);
            wake_.wait(lock, [&] { return turn_.load(std::memory_order_seq_cst) != seen; });
            sleepers_.fetch_sub(1, std::memory_order_relaxed);
        }
        seen++;
        if (stop_) return;
        if (flushes_subnormals() != flushes_) flush_subnormals(flushes_);
        entry_(context_, workers_[id]);
        barrier();
    }
}

void Team::barrier() {
    const uint32_t generation = generation_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count()) {
        arrived_.store(0, std::memory_order_relaxed);
        claimed_.store(0, std::memory_order_relaxed);
        for (int i = 0; i < count(); i++) near_[i].taken.store(0, std::memory_order_relaxed);
        halted_ = failed_.load(std::memory_order_relaxed);
        generation_.store(generation + 1, std::memory_order_release);
        return;
    }
    watch([&] { return generation_.load(std::memory_order_acquire) != generation; }, kForever);
}

void Team::note(const Worker& worker, const Failure& failure) {
    std::lock_guard<std::mutex> lock(failure_mutex_);
    if (failed_ && failed_call_ <= worker.call) return;
    failure_ = failure;
    failed_call_ = worker.call;
    failed_ = true;
}

}  // namespace samebits
