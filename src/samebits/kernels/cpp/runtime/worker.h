// One thread's view of a running program: who it is, its scratch memory, barriers, shared work, and failure.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tensor.h"

namespace samebits {

// What is wrong with the data of a call. All three are string literals.
struct Failure {
    const char* argument;
    const char* given;
    const char* needed;
};

class Team;  // runtime/pool.h

class alignas(64) Worker {  // a cache line of its own: `call` changes all the time
  public:
    int id = 0;     // both may change when threads meet between two calls, and at no other time
    int count = 1;
    int call = 0;             // the number of the call it runs: a failure names it, and a thread that joins starts there
    char* scratch = nullptr;  // this thread's own, of the size the op asked for, 64-byte aligned
    char* shared = nullptr;   // all threads', likewise

    // Waits for all threads. Every thread of the team must call it.
    void barrier();

    // A barrier between two calls, where threads may join and leave. Returns whether this thread is to go on with the next
    // call: false if any thread has failed, which all threads learn at the same meeting, or if this thread is to leave.
    bool meet();

    // The next piece of `total` units, `size` at a time, in the order of claims; false when none is left. The
    // counter starts anew at every barrier. Which thread gets a piece has no effect on bits: none shares a sum.
    bool claim(int64_t total, int64_t size, int64_t& first, int64_t& last);

    // The next one of `total` units of this thread's own share, in order; then, so that a slow thread is helped, of the
    // others'. False when none is left. Not together with `claim` between two barriers.
    bool claim_near(int64_t total, int64_t& unit);

    // This thread's part of `total` units, the same for every op: what one op wrote here, the next reads here.
    SAMEBITS_INLINE void share(int64_t total, int64_t& first, int64_t& last) const { share_of(id, total, first, last); }

    // Notes a failure of this call; the program stops at the next barrier. The kernel goes on, safely.
    void fail(const Failure& failure);

  private:
    SAMEBITS_INLINE void share_of(int thread, int64_t total, int64_t& first, int64_t& last) const {
        const int64_t part = total / count, rest = total % count;
        first = thread * part + (thread < rest ? thread : rest);
        last = first + part + (thread < rest ? 1 : 0);
    }

    friend class Team;
    Team* team = nullptr;
    int thread = 0;  // its number among the team's threads, which never changes
};

}  // namespace samebits
