// The thread team and programs under many short runs: waking, barriers, claims, failures, two users, threads that join and leave
// during a run, the floating-point mode, taking down.
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/pool.h"
#include "runtime/program.h"

using namespace samebits;

namespace {

constexpr int kMostThreads = 4;

void require(bool holds, const char* what) {
    if (holds) return;
    fprintf(stderr, "stress: %s\n", what);
    exit(1);
}

void sleep_us(int time) { std::this_thread::sleep_for(std::chrono::microseconds(time)); }

// Each thread writes its slot, meets the others, reads all slots. Plain memory: only barriers order it.
void check_barriers(Team& team, int rounds) {
    std::vector<int> slots(size_t(team.most()));
    team.run([&](Worker& worker) {
        for (int round = 1; round <= rounds; round++) {
            slots[size_t(worker.id)] = round;
            worker.barrier();
            for (int slot : slots) require(slot == round, "a barrier opened early");
            worker.barrier();
        }
    });
}

// Every unit of each round is claimed once, in pieces or one by one.
void check_claims(Team& team, int64_t total, int64_t size) {
    std::vector<int> taken(size_t(4 * total));
    team.run([&](Worker& worker) {
        for (int round = 0; round < 4; round++) {
            int64_t first, last;
            while (round % 2 == 0 && worker.claim(total, size, first, last))
                for (int64_t i = first; i < last; i++) taken[size_t(round * total + i)]++;
            while (round % 2 == 1 && worker.claim_near(total, first)) taken[size_t(round * total + first)]++;
            worker.barrier();
        }
    });
    for (int times : taken) require(times == 1, "a unit was claimed other than once");
}

void check_teams(int threads) {
    for (int i = 0; i < 20; i++) Team unused(threads);  // down before its threads are up
    for (int i = 0; i < 20; i++) {
        Team team(threads);
        check_barriers(team, 3);
        if (i % 2) sleep_us(3000);  // its threads are asleep when it goes
    }
    for (int i = 0; i < 100; i++) {  // down while threads that were asked in too late still answer
        Team team(threads, true);
        sleep_us(i % 10 * 50);
        check_claims(team, 9, 2);
    }
    Team team(threads);
    for (int i = 0; i < 300; i++) {
        check_barriers(team, 5);
        check_claims(team, i % 37, 1 + i % 5);
        if (i % 20 == 0) sleep_us(i % 40 ? 1000 : 3000);  // on the edge of falling asleep, and asleep
    }
}

// out[i] += 1 for this thread's rows; all scratch is written, so that memory two threads share would show.
void run_count(const Call& call, Worker& worker) {
    memset(worker.scratch, worker.id, 256);
    int64_t first, last;
    worker.share(call.out[0]->shape[0], first, last);
    for (int64_t i = first; i < last; i++) call.out[0]->as<int32_t>()[i]++;
    for (int i = 0; i < 256; i++) require(worker.scratch[i] == worker.id, "scratch is shared");
}
Scratch count_scratch(const Call&, int) { return {256, 0}; }

// The same through claims, after a count in shared memory.
void run_claim(const Call& call, Worker& worker) {
    if (worker.id == 0) memset(worker.shared, 1, size_t(call.out[0]->shape[0]));
    worker.barrier();
    int64_t first, last;
    while (worker.claim(call.out[0]->shape[0], 3, first, last))
        for (int64_t i = first; i < last; i++) call.out[0]->as<int32_t>()[i] += worker.shared[i];
}
Scratch claim_scratch(const Call& call, int) { return {0, size_t(call.out[0]->shape[0])}; }

// Fails on the threads that are to fail by attr 0, a mask.
void run_fail(const Call& call, Worker& worker) {
    if (call.integer(0) >> worker.id & 1) worker.fail({"mask", "this thread's bit", "none"});
}

// The last thread has no processor for a while, if attr 0 is set; counts the calls that ran on fewer threads than attr 1.
std::atomic<int> num_with_fewer{0};
void run_stall(const Call& call, Worker& worker) {
    require(worker.count <= call.integer(1), "a team has too many threads");
    if (worker.id == 0 && worker.count < call.integer(1)) num_with_fewer++;
    if (call.integer(0) && worker.count > 1 && worker.id == worker.count - 1) sleep_us(300);
}

constexpr NativeOp kOps[] = {{"count", run_count, Split::rows, count_scratch},
                             {"claim", run_claim, Split::free, claim_scratch},
                             {"fail", run_fail, Split::rows},
                             {"fail_later", run_fail, Split::rows},
                             {"stall", run_stall, Split::free}};
constexpr OpTable kTable = {"stress", kOps, 5, nullptr, nullptr, nullptr};

// A program over one i32 [rows] tensor: four counts, and failures on the threads of a mask, then on the others, before
// the last. No barrier is between the failures, so the later one often comes first.
struct Steps {
    Program program{kTable, {1000}};
    int tensor = program.add_tensor(Format::i32, {{0, 1, 0}}, 0);

    explicit Steps(double fail_mask) {
        program.lay_in_arena(tensor, 64);
        program.add_call("count", {}, {tensor}, {}, true);
        program.add_call("claim", {}, {tensor}, {}, true);
        program.add_call("fail", {}, {tensor}, {fail_mask}, false);
        program.add_call("fail_later", {}, {tensor}, {fail_mask ? 15 - fail_mask : 0}, false);
        program.add_call("count", {}, {tensor}, {}, true);
        program.add_call("count", {}, {tensor}, {}, true);
        program.allocate(64 + 4000);
        memset(program.tensor(tensor).data, 0, 4000);
    }
    // One step must add `added` to every row.
    void step(Team& team, int64_t rows, int added, bool fails) {
        int32_t* values = program.tensor(tensor).as<int32_t>();
        memset(values, 0, 4000);
        const StepFailure end = program.run(team, {rows});
        require((end.op != nullptr) == fails, "a failure came or did not");
        require(!fails || !strcmp(end.op, "fail"), "a failure has another op's name");
        for (int64_t i = 0; i < 1000; i++) require(values[i] == (i < rows ? added : 0), "a row has another count");
    }
};

void check_programs(int threads) {
    Team team(threads);
    Steps good(0), bad(1 << (threads - 1)), worse(15);
    for (int i = 0; i < 300; i++) {
        good.step(team, i % 7 * 100, 4, false);
        bad.step(team, i, 3, true);  // all calls up to the barrier run, none after it
        worse.step(team, 1000 - i, 3, true);
    }
}

// Two threads of the caller's with a program each, on one team; then one program on teams old and new.
void check_users(int threads) {
    Team team(threads);
    std::thread other([&] {
        Steps steps(0);
        for (int i = 0; i < 200; i++) steps.step(team, 1000, 4, false);
    });
    Steps steps(1), large(0);
    for (int i = 0; i < 200; i++) steps.step(team, 10, 3, true);
    other.join();
    for (int i = 0; i < 5; i++) {
        Team fresh(threads), single(1);
        large.step(team, 1000, 4, false);
        large.step(fresh, 1000, 4, false);
        if (i % 2) large.step(single, 500, 4, false);
    }
}

// Each stalled call costs far more than it brings, so threads leave; in calls that do not stall they are tried again. Whichever
// threads run a call, it must run on each row once, and a failure must end the step.
void check_adapting(int threads) {
    Team team(threads, true);
    constexpr int kCalls = 40;
    for (int round = 0; round < 12; round++) {
        const bool fails = round % 4 == 3, stalls = round % 3 == 0;
        Program program{kTable, {1000}};
        const int tensor = program.add_tensor(Format::i32, {{0, 1, 0}}, 0);
        program.lay_in_arena(tensor, 64);
        for (int i = 0; i < kCalls; i++) {
            program.add_call("stall", {}, {tensor}, {double(stalls && i < kCalls / 2), double(threads)}, true);
            program.add_call("count", {}, {tensor}, {}, true);
            program.add_call("claim", {}, {tensor}, {}, true);
        }
        if (fails) program.add_call("fail", {}, {tensor}, {15}, true);
        program.add_call("count", {}, {tensor}, {}, true);
        program.allocate(64 + 4000);
        int32_t* values = program.tensor(tensor).as<int32_t>();
        for (int step = 0; step < 4; step++) {
            memset(values, 0, 4000);
            const StepFailure end = program.run(team, {1000});
            require((end.op != nullptr) == fails, "a failure came or did not");
            for (int i = 0; i < 1000; i++) require(values[i] == 2 * kCalls + !fails, "a row has another count");
            if (step == 2) sleep_us(round % 2 ? 1000 : 3000);
        }
    }
    require((num_with_fewer.exchange(0) > 0) == (threads > 1), "threads that stall stayed, or one was taken away");
}

// The mode that sums really have; std::fegetround reads another register on x86.
int rounding() {
    volatile float one = 1, small = 1e-10f;
    const float above = one + small, below = one - small, below_negative = -one - small;
    if (above > 1) return FE_UPWARD;
    if (below < 1) return below_negative < -1 ? FE_DOWNWARD : FE_TOWARDZERO;
    return FE_TONEAREST;
}

// Kernels round to nearest in all threads, whatever the caller does and did when the team was started.
void check_rounding(int threads) {
    std::fesetround(FE_UPWARD);
    Team team(threads);
    for (int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST}) {
        std::fesetround(mode);
        team.run([&](Worker& worker) {
            require(rounding() == FE_TONEAREST, "a thread does not round to nearest");
            worker.barrier();
        });
        require(rounding() == mode, "a run changed its caller's rounding");
    }
}

}  // namespace

int main() {
    for (int threads = 1; threads <= kMostThreads; threads++) {
        check_teams(threads);
        check_programs(threads);
        check_users(threads);
        check_adapting(threads);
        check_rounding(threads);
    }
    Team crowd(16);  // more than there are cores
    check_barriers(crowd, 50);
    printf("stress: ok\n");
}
