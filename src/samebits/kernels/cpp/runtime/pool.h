// A team of threads that lives as long as the backend: one call runs a function on all of them.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "worker.h"

namespace samebits {

class Team {
  public:
    explicit Team(int count);
    ~Team();
    Team(const Team&) = delete;

    int count() const { return int(workers_.size()); }

    // Held by whoever uses the team, from `reserve` until it has read `failure`: one user at a time.
    std::unique_lock<std::mutex> lock() { return std::unique_lock<std::mutex>(use_mutex_); }

    // Scratch memory, at least this much; never shrinks.
    void reserve(size_t per_thread, size_t shared);

    // Runs task(worker) on every thread, the caller's among them and all in its float mode; returns when all are done.
    template <class Task>
    void run(Task&& task) {
        start([](void* context, Worker& worker) { (*static_cast<Task*>(context))(worker); }, &task);
    }

    // The failure of the last run in the earliest call that had one, or null; and that call's number.
    const Failure* failure() const { return failed_ ? &failure_ : nullptr; }
    int failed_call() const { return failed_call_; }

  private:
    friend class Worker;
    using Entry = void (*)(void*, Worker&);
    void start(Entry entry, void* context);
    void stop();
    void loop(int id);
    void barrier();
    void note(const Worker& worker, const Failure& failure);

    std::vector<Worker> workers_;
    std::vector<std::thread> threads_;
    std::mutex use_mutex_;

    // Waking: `turn_` counts runs; a thread watches it for a moment and then sleeps.
    std::mutex sleep_mutex_;
    std::condition_variable wake_;
    alignas(64) std::atomic<uint32_t> turn_{0};
    std::atomic<int> sleepers_{0};
    Entry entry_ = nullptr;
    void* context_ = nullptr;
    bool flushes_ = false;
    bool stop_ = false;

    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<uint32_t> generation_{0};
    alignas(64) std::atomic<int64_t> claimed_{0};  // back to 0 when all have arrived at a barrier
    struct alignas(64) Counter {
        std::atomic<int64_t> taken{0};
    };
    std::unique_ptr<Counter[]> near_;  // of each thread's share, likewise

    std::mutex failure_mutex_;
    Failure failure_{};
    int failed_call_ = -1;
    std::atomic<bool> failed_{false};
    bool halted_ = false;  // failed_ as the last thread at a barrier saw it, so that all stop at the same one

    char* memory_ = nullptr;
    size_t per_thread_ = 0, shared_ = 0;
};

}  // namespace samebits
