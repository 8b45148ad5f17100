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

    // Runs task(worker) on every thread, the caller's among them; returns when all are done. One run at a time.
    template <class Task>
    void run(Task&& task) {
        start([](void* context, Worker& worker) { (*static_cast<Task*>(context))(worker); }, &task);
    }

    // Scratch memory, at least this much; never shrinks. Not during a run.
    void reserve(size_t per_thread, size_t shared);

    // The first failure of the last run, or null.
    const Failure* failure() const { return failed_ ? &failure_ : nullptr; }

  private:
    friend class Worker;
    using Entry = void (*)(void*, Worker&);
    void start(Entry entry, void* context);
    void loop(int id);
    void barrier();

    std::vector<Worker> workers_;
    std::vector<std::thread> threads_;
    std::mutex run_mutex_;

    // Waking: `turn_` counts runs; a thread spins on it for a moment and then sleeps.
    std::mutex sleep_mutex_;
    std::condition_variable wake_;
    alignas(64) std::atomic<uint32_t> turn_{0};
    std::atomic<int> sleepers_{0};
    Entry entry_ = nullptr;
    void* context_ = nullptr;
    bool stop_ = false;

    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<uint32_t> generation_{0};
    alignas(64) std::atomic<int64_t> claimed_[2] = {};  // one is in use, the other is cleared at the barrier between

    std::mutex failure_mutex_;
    Failure failure_{};
    std::atomic<bool> failed_{false};
    bool halted_ = false;  // failed_ as the last thread at a barrier saw it, so that all stop at the same one

    char* memory_ = nullptr;
    size_t per_thread_ = 0, shared_ = 0;
};

}  // namespace samebits
