#include "program.h"

#include <chrono>
#include <cstring>
#include <stdexcept>

#include "aligned_memory.h"

namespace samebits {

namespace {

using Clock = std::chrono::steady_clock;

struct Block {
    int elements, bytes;
};

Block block_of(Format format) {
    switch (format) {
        case Format::f32:
        case Format::i32:
        case Format::u32: return {1, 4};
        case Format::f16:
        case Format::bf16: return {1, 2};
        case Format::i8:
        case Format::u8:
        case Format::boolean: return {1, 1};
        case Format::q4_0: return {32, 18};
        case Format::q4_1: return {32, 20};
        case Format::q5_0: return {32, 22};
        case Format::q5_1: return {32, 24};
        case Format::q8_0: return {32, 34};
        case Format::q4_k: return {256, 144};
        case Format::q5_k: return {256, 176};
        case Format::q6_k: return {256, 210};
        case Format::nvfp4: return {16, 9};
        case Format::mxfp4: return {32, 17};
        case Format::q2_k: return {256, 84};
        case Format::q3_k: return {256, 110};
        case Format::iq4_nl: return {32, 18};
        case Format::iq4_xs: return {256, 136};
    }
    throw std::invalid_argument("unknown format");
}

}  // namespace

int64_t row_bytes(Format format, int64_t num_elements) {
    const Block block = block_of(format);
    return num_elements / block.elements * block.bytes;
}

Program::Program(const OpTable& table, std::vector<int64_t> largest_sizes)
    : table_(table), largest_(std::move(largest_sizes)) {}

Program::~Program() { free_aligned(arena_); }

int Program::add_tensor(Format format, const std::vector<Dim>& dims, int64_t row_stride) {
    if (dims.size() > kMaxRank) throw std::invalid_argument("a tensor has too many axes");
    Slot slot;
    slot.tensor.format = format;
    slot.tensor.rank = int(dims.size());
    slot.dims = dims;
    slot.row_stride = row_stride;
    slots_.push_back(slot);
    laid_out_.reset();
    return int(slots_.size()) - 1;
}

void Program::lay_in_arena(int tensor, int64_t offset) { slots_.at(tensor).arena_offset = offset; }

void Program::lay_in_tensor(int tensor, int base, int64_t offset) {
    slots_.at(tensor).base = base;
    slots_.at(tensor).base_offset = offset;
}

void Program::bind(int tensor, uintptr_t address, Layout layout, float scale) {
    Tensor& target = slots_.at(tensor).tensor;
    target.data = reinterpret_cast<char*>(address);
    target.scale = scale;
    if (target.layout != layout) scratch_threads_ = 0;  // scratch depends on it
    laid_out_.reset();                                  // so do tensors inside this one
    target.layout = layout;
}

void Program::add_call(const std::string& op, const std::vector<int>& inputs, const std::vector<int>& outputs,
                       const std::vector<double>& attrs, bool barrier) {
    if (inputs.size() > kMaxInputs || outputs.size() > kMaxOutputs || attrs.size() > kMaxAttrs)
        throw std::invalid_argument(op + ": too many arguments");
    Step step{nullptr, inputs, outputs, {}, barrier};
    for (int i = 0; i < table_.num_ops; i++)
        if (op == table_.ops[i].name) step.op = &table_.ops[i];
    if (!step.op) throw std::invalid_argument("no native op " + op);
    for (size_t i = 0; i < attrs.size(); i++) step.call.attr[i] = attrs[i];
    calls_.push_back(step);
}

void Program::allocate(int64_t arena_bytes) {
    free_aligned(arena_);
    const size_t size = (size_t(arena_bytes) + 4095) / 4096 * 4096 + 4096;
    arena_ = allocate_aligned(4096, size);
    laid_out_.reset();
    for (Slot& slot : slots_)
        if (slot.arena_offset >= 0) slot.tensor.data = arena_ + slot.arena_offset;
    for (Step& step : calls_) {  // no tensor is added after this, so addresses last
        for (size_t i = 0; i < step.inputs.size(); i++)
            step.call.in[i] = step.inputs[i] < 0 ? nullptr : &slots_.at(step.inputs[i]).tensor;
        for (size_t i = 0; i < step.outputs.size(); i++) step.call.out[i] = &slots_.at(step.outputs[i]).tensor;
    }
}

void Program::lay_out(const std::vector<int64_t>& sizes) {
    if (laid_out_ == sizes) return;
    for (Slot& slot : slots_) {
        Tensor& t = slot.tensor;
        for (int i = 0; i < t.rank; i++) t.shape[i] = slot.dims[i].value(sizes.data());
        if (t.rank) {
            t.stride[t.rank - 1] = row_bytes(t.format, 1);
            int64_t stride = row_bytes(t.format, t.width());
            for (int i = t.rank - 2; i >= 0; i--) {
                t.stride[i] = stride;
                stride *= t.shape[i];
            }
            if (slot.row_stride && t.rank > 1) t.stride[0] = slot.row_stride;
        }
        if (slot.base >= 0) t.data = slots_[slot.base].tensor.data + slot.base_offset;
    }
    laid_out_ = sizes;
}

Scratch Program::scratch_needed(int threads) {
    Scratch most;
    for (Step& step : calls_)
        if (step.op->scratch) {
            const Scratch need = step.op->scratch(step.call, threads);
            if (need.per_thread > most.per_thread) most.per_thread = need.per_thread;
            if (need.shared > most.shared) most.shared = need.shared;
        }
    return most;
}

StepFailure Program::run(Team& team, const std::vector<int64_t>& sizes) {
    if (sizes.size() != largest_.size()) throw std::invalid_argument("a step needs a size for every symbol");
    for (size_t i = 0; i < sizes.size(); i++)
        if (sizes[i] < 0 || sizes[i] > largest_[i]) throw std::invalid_argument("a size is beyond its upper bound");
    const auto alone = team.lock();
    if (scratch_threads_ != team.most()) {
        lay_out(largest_);
        scratch_ = scratch_needed(team.most());
        scratch_threads_ = team.most();
    }
    team.reserve(scratch_.per_thread, scratch_.shared);  // each time: it may be another team of as many threads
    lay_out(sizes);
    team.run([&](Worker& worker) {
        const bool timed = worker.id == 0 && !seconds_.empty();
        for (size_t i = size_t(worker.call); i < calls_.size(); i++) {
            const Step& step = calls_[i];
            const auto start = timed ? Clock::now() : Clock::time_point();
            worker.call = int(i);
            step.op->run(step.call, worker);
            if (step.barrier) {
                const Step* next = i + 1 < calls_.size() ? &calls_[i + 1] : nullptr;
                if (next && next->op->warm) next->op->warm(next->call, worker);
                if (!worker.meet()) return;
            }
            if (timed) seconds_[i] = std::chrono::duration<double>(Clock::now() - start).count();
        }
    });
    if (!team.failure()) return {};
    return {calls_[team.failed_call()].op->name, *team.failure()};
}

}  // namespace samebits
