// A team of threads that lives as long as the backend: one call runs a function on some or all of them.
#pragma once
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "float_mode.h"
#include "thread_choice.h"
#include "wait_word.h"
#include "worker.h"

namespace samebits {

class Team {
  public:
    // `adapts`: fewer than `most` threads run where more would take longer (thread_choice.h), because other processes want
    // the processors or because there is little to do. Otherwise every run has exactly `most` threads.
    explicit Team(int most, bool adapts = false);
    ~Team();
    Team(const Team&) = delete;

    int most() const { return int(workers_.size()); }
    bool adapts() const { return adapts_; }

    // How many threads the last run had when it ended.
    int members() const { return members_; }

    // Held by whoever uses the team, from `reserve` until it has read `failure`: one user at a time.
    std::unique_lock<std::mutex> lock() { return std::unique_lock<std::mutex>(use_mutex_); }

    // Scratch memory, at least this much; never shrinks.
    void reserve(size_t per_thread, size_t shared);

    // Runs task(worker) on the caller's thread and others, all in the floating-point mode of kernels (float_mode.h); returns
    // when all are done.
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
    using Clock = std::chrono::steady_clock;

    // What a thread does, as a number it waits on. The caller asks a thread in; the thread answers that it is here, which it
    // can only while it has a processor; then it gets a seat, takes part, and is away again. In the end it is dismissed.
    enum Seat : uint32_t { kAway, kAsked, kHere, kSeated, kDismissed };
    struct alignas(64) Place {
        WaitWord seat;
    };

    void start(Entry entry, void* context);
    void stop();
    void loop(int thread);
    Nanoseconds barrier(bool is_meeting);
    bool meet(Worker& worker);
    void adapt();
    void measure();
    void gather(int count);
    void resize(int call);
    void seat_newcomers();
    void note(const Worker& worker, const Failure& failure);

    std::vector<Worker> workers_;     // by thread; the caller's is the first
    std::unique_ptr<Place[]> places_;  // likewise; the caller's is not used
    std::vector<std::thread> threads_;
    const bool adapts_;
    const Patience at_barrier_;
    std::mutex use_mutex_;

    // Of the run under way. A thread may read these from when it is seated until it has left.
    Entry entry_ = nullptr;
    void* context_ = nullptr;
    FloatMode mode_ = kUsualMode;
    int members_ = 1;       // threads that run it: those who wait for each other at a barrier
    int next_members_ = 1;  // from the next meeting on; the first thread sets it

    alignas(64) ThreadChoice choice_;  // this and the next two: the first thread's alone
    Clock::time_point measured_;
    Nanoseconds waited_{0};  // by the first thread for others, since measured_

    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) WaitWord generation_;
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
