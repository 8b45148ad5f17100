// A native implementation of an op, and the table an instruction set fills.
#pragma once
#include "tensor.h"
#include "worker.h"

namespace samebits {

// How a kernel splits its work; decides where the program needs a barrier (backends/cpu/barriers.py).
//   rows     thread by thread along the first axis of the first result: Worker::share(shape[0])
//   cells    likewise along that of the first input; results lie elsewhere, in cells that other threads read
//   free     anything else
// A thread of the first two reads only its own rows of an input with more than one axis whose first axis has the same
// name in the op's record, where the op is invariant along it. It may read any row of other inputs.
enum class Split { rows, cells, free };

struct Scratch {
    size_t per_thread = 0;
    size_t shared = 0;
};

struct NativeOp {
    const char* name;
    void (*run)(const Call&, Worker&);  // called by every thread of the team
    Split split = Split::free;
    // Bytes needed for a call whose shapes are at their upper bounds and that at most `threads` threads run; null: none.
    Scratch (*scratch)(const Call&, int threads) = nullptr;
    // Fetches what this thread will read first, while it waits for the others to finish the call before; null: nothing.
    void (*warm)(const Call&, Worker&) = nullptr;
};

struct OpTable {
    const char* isa;
    const NativeOp* ops;
    int num_ops;
    // Weights in Layout::rows16: bytes of [rows, width], and packing of some groups of 16 rows (false: a value that
    // products do not allow). All tables pack alike.
    size_t (*rows16_bytes)(Format format, int64_t rows, int64_t width);
    bool (*pack_rows16)(const char* from, size_t row_stride, Format format, int64_t rows, int64_t width, int64_t first_group,
                        int64_t last_group, uint8_t* to);
    int64_t (*read_all)(const char* memory, size_t num_bytes);  // ops/bandwidth.h
};

}  // namespace samebits
