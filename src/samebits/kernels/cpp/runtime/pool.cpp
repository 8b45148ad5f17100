#include "pool.h"

#include <limits>
#include <stdexcept>

#if defined(__linux__)
#include <sched.h>
#endif

#include "aligned_memory.h"

namespace samebits {

namespace {

using std::chrono::microseconds;

// At a barrier a thread keeps its processor for longer than uneven shares of a call differ, and then sleeps: the thread it
// waits for may need this processor, or has none. Where there are fewer processors than threads that is always so.
constexpr Patience kAtBarrier{microseconds(50), microseconds(50)};
constexpr Patience kWithoutProcessor{microseconds(2), microseconds(2)};
// After a run, until the next: longer than the time between two steps of a decode. Nobody waits for this thread, so it
// offers its processor to others.
constexpr Patience kBetweenRuns{microseconds(2), microseconds(1000)};
constexpr Patience kAsleep{Nanoseconds(0), Nanoseconds(0)};
// For threads that were asked in to have a processor: longer than a sleeping one needs to wake up where one is idle.
constexpr Nanoseconds kRollCall = microseconds(100);
constexpr Patience kAtRollCall{kRollCall, kRollCall};
constexpr Nanoseconds kWorthMeasuring = microseconds(100);  // waited since the last measurement
constexpr int kNoCall = std::numeric_limits<int>::max();  // beyond every program's last call

double seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

size_t aligned(size_t n) { return (n + 63) / 64 * 64; }

// Processors that this thread, and so those it starts, may run on.
int num_processors() {
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
#endif
    return int(std::thread::hardware_concurrency());
}

}  // namespace

void Worker::barrier() {
    const Nanoseconds waited = team->barrier(false);
    if (thread == 0) team->waited_ += waited;
}

bool Worker::meet() { return team->meet(*this); }

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

Team::Team(int most, bool adapts)
    : workers_(most > 0 ? size_t(most) : throw std::invalid_argument("a team needs a thread")),
      places_(new Place[size_t(most)]),
      adapts_(adapts),
      at_barrier_(most > num_processors() ? kWithoutProcessor : kAtBarrier),
      choice_(most),
      near_(new Counter[size_t(most)]) {
    for (int thread = 0; thread < most; thread++) {
        workers_[thread].thread = thread;
        workers_[thread].team = this;
    }
    try {
        for (int thread = 1; thread < most; thread++) threads_.emplace_back([this, thread] { loop(thread); });
    } catch (...) {  // the system has no more threads
        stop();
        throw;
    }
}

Team::~Team() {
    stop();
    free_aligned(memory_);
}

// Ends all threads. None is in a run, but one that was asked in too late may still be about to answer; its answer then fails.
void Team::stop() {
    for (int thread = 1; thread < most(); thread++) places_[thread].seat.store(kDismissed);
    for (auto& thread : threads_) thread.join();
}

void Team::reserve(size_t per_thread, size_t shared) {
    per_thread = aligned(per_thread);
    shared = aligned(shared);
    if (per_thread <= per_thread_ && shared <= shared_) return;
    if (per_thread < per_thread_) per_thread = per_thread_;
    if (shared < shared_) shared = shared_;
    char* memory = allocate_aligned(64, shared + per_thread * workers_.size());
    free_aligned(memory_);
    memory_ = memory;
    per_thread_ = per_thread;
    shared_ = shared;
    for (auto& worker : workers_) {
        worker.shared = memory_;
        worker.scratch = memory_ + shared_ + per_thread_ * worker.thread;
    }
}

void Team::start(Entry entry, void* context) {
    const KernelMode mode;
    failed_ = halted_ = false;
    failed_call_ = -1;
    entry_ = entry;
    context_ = context;
    mode_ = float_mode();
    members_ = next_members_ = workers_[0].count = 1;
    waited_ = Nanoseconds(0);
    if (adapts_) measured_ = Clock::now();
    if (const int count = adapts_ ? choice_.count() : most(); count > 1) {
        gather(count);
        resize(0);
        seat_newcomers();
    }
    workers_[0].call = 0;
    entry(context, workers_[0]);
    waited_ += barrier(false);
    if (adapts_) measure();
}

void Team::loop(int thread) {
    WaitWord& seat = places_[thread].seat;
    for (Patience patience = kAsleep;;) {
        seat.wait(kAway, patience);
        if (seat.load() == kDismissed) return;
        patience = kAsleep;  // until it has taken part to the end: others want its processor
        if (!seat.change(kAsked, kHere)) continue;  // too late
        seat.wait(kHere, at_barrier_);
        set_float_mode(mode_);
        entry_(context_, workers_[thread]);
        if (seat.load() != kSeated) continue;  // it left at a meeting
        patience = kBetweenRuns;
        seat.store(kAway);  // before the barrier, since the next run may begin right after it
        barrier(false);
    }
}

// Returns the time that this thread waited.
Nanoseconds Team::barrier(bool is_meeting) {
    const uint32_t generation = generation_.load();
    const int members = members_;  // may be another as soon as this thread has arrived
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < members) return generation_.wait(generation, at_barrier_);
    arrived_.store(0, std::memory_order_relaxed);
    claimed_.store(0, std::memory_order_relaxed);
    for (int i = 0; i < members; i++) near_[i].taken.store(0, std::memory_order_relaxed);
    halted_ = failed_.load(std::memory_order_relaxed);
    if (is_meeting && next_members_ != members) resize(halted_ ? kNoCall : workers_[0].call + 1);
    generation_.store(generation + 1);
    return Nanoseconds(0);
}

bool Team::meet(Worker& worker) {
    if (worker.thread != 0) {
        barrier(true);
        // A thread that left reads nothing else: the others have gone on, and may have changed or ended the run.
        return places_[worker.thread].seat.load() == kSeated && !halted_;
    }
    if (adapts_) adapt();
    const bool grows = next_members_ > members_;
    waited_ += barrier(true);
    if (grows) seat_newcomers();
    return !halted_;
}

// Called by the first thread, as the next five are: decides how many threads go on after the meeting it is about to join.
void Team::adapt() {
    if (waited_ < kWorthMeasuring && members_ == most()) return;  // most meetings on a quiet machine: not even a clock is read
    measure();
    next_members_ = choice_.count();
    if (next_members_ > members_) gather(next_members_);
}

void Team::measure() {
    const Clock::time_point now = Clock::now();
    choice_.ran(seconds(now - measured_), seconds(waited_));
    measured_ = now;
    waited_ = Nanoseconds(0);
}

// Asks threads in, so that `count` run, and waits for their answers; next_members_ is then how many there will be. A team
// that adapts does not wait for threads that have no processor: they stay away.
void Team::gather(int count) {
    int num_asked = 0;
    for (int thread = 1; thread < most() && members_ + num_asked < count; thread++)
        num_asked += places_[thread].seat.change(kAway, kAsked);
    next_members_ = members_;
    Nanoseconds left = adapts_ ? kRollCall : kForever;
    for (int thread = 1; thread < most(); thread++) {
        WaitWord& seat = places_[thread].seat;
        const uint32_t found = seat.load();
        if (found != kAsked && found != kHere) continue;
        const Nanoseconds waited = seat.wait(kAsked, adapts_ ? kAtRollCall : at_barrier_, left);
        if (adapts_) left = waited < left ? left - waited : Nanoseconds(0);
        next_members_ += !seat.change(kAsked, kAway);
    }
    if (!adapts_) return;
    if (next_members_ < count) {
        choice_.missed(next_members_, seconds(kRollCall - left));
    } else {
        waited_ += kRollCall - left;
    }
}

// Numbers the threads that go on with call number `call`, next_members_ of them, while all wait: those with the highest numbers
// leave, those that were asked in get the next ones.
void Team::resize(int call) {
    int newcomers = members_;
    for (int thread = 0; thread < most(); thread++) {
        Worker& worker = workers_[thread];
        const uint32_t seat = thread == 0 ? uint32_t(kSeated) : places_[thread].seat.load();
        if (seat == kHere) {
            worker.id = newcomers++;
            worker.call = call;
        } else if (seat == kSeated && worker.id >= next_members_) {
            places_[thread].seat.store(kAway);
            continue;
        } else if (seat != kSeated) {
            continue;
        }
        worker.count = next_members_;
    }
    members_ = next_members_;
}

// Lets those begin that were asked in. Not before the barrier of their meeting is open: they must not arrive at it.
void Team::seat_newcomers() {
    for (int thread = 1; thread < most(); thread++) places_[thread].seat.change(kHere, kSeated);
}

void Team::note(const Worker& worker, const Failure& failure) {
    std::lock_guard<std::mutex> lock(failure_mutex_);
    if (failed_ && failed_call_ <= worker.call) return;
    failure_ = failure;
    failed_call_ = worker.call;
    failed_ = true;
}

}  // namespace samebits
