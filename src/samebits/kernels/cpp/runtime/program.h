// A whole step as a list of native calls over tensors whose sizes may change from step to step.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "op.h"
#include "pool.h"

namespace samebits {

struct Dim {
    int symbol;  // an index into the sizes of a step, or -1 for a constant
    int64_t factor, plus;
    int64_t value(const int64_t* sizes) const { return symbol < 0 ? plus : factor * sizes[symbol] + plus; }
};

// What ended a step; no op if it went well.
struct StepFailure {
    const char* op = nullptr;
    Failure failure{};
};

class Program {
  public:
    explicit Program(const OpTable& table, std::vector<int64_t> largest_sizes);
    ~Program();
    Program(const Program&) = delete;

    // A tensor; `row_stride` is in bytes, 0 for rows that follow each other. Returns its number.
    int add_tensor(Format format, const std::vector<Dim>& dims, int64_t row_stride);
    void lay_in_arena(int tensor, int64_t offset);            // at this offset of the program's own memory
    void lay_in_tensor(int tensor, int base, int64_t offset);  // inside another tensor, given before
    // Memory of the caller's, which must outlive the program's runs or be bound anew.
    void bind(int tensor, uintptr_t address, Layout layout, float scale);

    // barrier: whether the next call must wait for this one on all threads.
    void add_call(const std::string& op, const std::vector<int>& inputs, const std::vector<int>& outputs,
                  const std::vector<double>& attrs, bool barrier);
    void allocate(int64_t arena_bytes);

    // One step; every tensor that is read must have its memory.
    StepFailure run(Team& team, const std::vector<int64_t>& sizes);

    // What each call of the last run took on the first thread, barrier included, once `measure` was called.
    void measure() { seconds_.assign(calls_.size(), 0.0); }
    const std::vector<double>& seconds() const { return seconds_; }

    const Tensor& tensor(int number) const { return slots_[number].tensor; }
    const char* op_name(int call) const { return calls_[call].op->name; }

  private:
    struct Slot {
        Tensor tensor;
        std::vector<Dim> dims;
        int64_t row_stride = 0, arena_offset = -1;
        int base = -1;
        int64_t base_offset = 0;
    };
    struct Step {
        const NativeOp* op;
        std::vector<int> inputs, outputs;
        Call call;
        bool barrier;
    };
    // Shapes, strides and addresses for these sizes; nothing to do where the step before had them, as in most of decode.
    void lay_out(const std::vector<int64_t>& sizes);
    Scratch scratch_needed(int threads);

    const OpTable& table_;
    std::vector<int64_t> largest_;
    std::vector<Slot> slots_;
    std::vector<Step> calls_;
    char* arena_ = nullptr;
    std::optional<std::vector<int64_t>> laid_out_;  // the sizes that tensors have; none yet, or where memory was moved
    std::vector<double> seconds_;
    Scratch scratch_;
    int scratch_threads_ = 0;  // the most threads that scratch_ is for; 0: not known yet
};

int64_t row_bytes(Format format, int64_t num_elements);

}  // namespace samebits
