// causal_conv: channels in the lanes, a stretch of them at a time through all sequences; the carry is updated in place.
#pragma once
#include "elementary.h"
#include "slots.h"

namespace samebits::SAMEBITS_ISA {

constexpr int64_t kStretch = 128;  // channels that a thread takes at a time: 8 lines of a row

struct Conv {
    const Tensor *x, *weight, *bias, *y;
    float* carry;
    int64_t channels, taps;
    bool has_silu;
};

// A thread's own: where the inputs of a token lie [taps], the taps of some channels [taps][kStretch], the inputs before
// a run [taps - 1][kStretch], and a byte for every slot.
struct ConvRoom {
    const float** inputs;
    float *weight, *before;
    char* taken;

    INLINE ConvRoom(char* scratch, int64_t taps)
        : inputs(reinterpret_cast<const float**>(scratch)),
          weight(reinterpret_cast<float*>(scratch + round_up(taps * 8, 64))),
          before(weight + taps * kStretch), taken(reinterpret_cast<char*>(before + (taps - 1) * kStretch)) {}
};

inline Scratch conv_scratch(const Call& call, int) {
    const int64_t taps = call.in[1]->shape[1], num_slots = call.in[2]->shape[0];
    return {size_t(round_up(taps * 8, 64) + (2 * taps - 1) * kStretch * 4 + num_slots), 0};
}

INLINE F conv_sum(const Conv& a, const ConvRoom& room, int64_t c, int64_t i, int n) {
    F sum = zero();
    for (int64_t tap = 0; tap < a.taps; tap++)
        sum = sum + load(room.weight + tap * kStretch + i) * load_partial(room.inputs[tap] + i, n);
    if (a.bias) sum = sum + load_partial(a.bias->as<float>() + c + i, n);
    const F total = settle(sum);
    return a.has_silu ? settle(total * sigmoid(total)) : total;
}

// Taps of the channels from c on, channels in the lanes.
INLINE void take_taps(const Conv& a, const ConvRoom& room, int64_t c, int64_t count, int64_t taps) {
    const float* from = a.weight->as<float>() + c * taps;
    for (int64_t i = 0; i < count; i++)
#pragma GCC unroll 4
        for (int64_t tap = 0; tap < taps; tap++) room.weight[tap * kStretch + i] = from[i * taps + tap];
}
inline void take_taps(const Conv& a, const ConvRoom& room, int64_t c, int64_t count) {
    if (a.taps == 4) take_taps(a, room, c, count, 4);  // as most models have
    else take_taps(a, room, c, count, a.taps);
}

// Input `at` of a run, the taps - 1 before its first token counted in: channel `c` and those after it.
INLINE const float* conv_input(const Conv& a, const ConvRoom& room, const Run& run, int64_t at, int64_t c) {
    const int64_t carried = a.taps - 1;
    if (at < carried) return room.before + at * kStretch;
    return reinterpret_cast<const float*>(a.x->row(run.row + at - carried)) + c;
}

// Channels c .. c + count - 1 of one sequence.
inline void conv_run(const Conv& a, const ConvRoom& room, const Run& run, int64_t c, int64_t count) {
    const int64_t carried = a.taps - 1, bytes = count * 4;
    float* own = a.carry + run.slot * 2 * carried * a.channels + c;
    float* at_boundary = own + carried * a.channels;
    const float* before = run.first % kChunk ? own : at_boundary;
    for (int64_t j = 0; j < carried; j++) {
        if (run.first == 0) memset(room.before + j * kStretch, 0, size_t(bytes));
        else memcpy(room.before + j * kStretch, before + j * a.channels, size_t(bytes));
    }
    for (int64_t t = 0; t < run.count; t++) {
        for (int64_t tap = 0; tap < a.taps; tap++) room.inputs[tap] = conv_input(a, room, run, t + tap, c);
        float* y = reinterpret_cast<float*>(a.y->row(run.row + t)) + c;
        int64_t i = 0;
        for (; i + 16 <= count; i += 16) store(y + i, conv_sum(a, room, c, i, 16));
        if (i < count) store_partial(y + i, conv_sum(a, room, c, i, int(count - i)), int(count - i));
    }
    const int64_t boundary = run.boundary() - run.first;
    for (int64_t j = 0; j < carried; j++) {
        memcpy(own + j * a.channels, conv_input(a, room, run, run.count + j, c), size_t(bytes));
        if (boundary > 0)
            memcpy(at_boundary + j * a.channels, conv_input(a, room, run, boundary + j, c), size_t(bytes));
    }
}

// x, weight, carry, qo_indptr, positions, slots, bias? -> y, carry; activation
inline void run_causal_conv(const Call& call, Worker& worker) {
    const Tensor &x = *call.in[0], &weight = *call.in[1], &carry = *call.in[2];
    const Conv a{&x,        &weight,         call.in[6],          call.out[0], carry.as<float>(),
                 x.width(), weight.shape[1], call.integer(0) == 1};
    const ConvRoom own(worker.scratch, a.taps);
    const Runs runs(*call.in[3], *call.in[4], *call.in[5]);
    if (!runs.check(carry.shape[0], own.taken, worker)) return;
    const int64_t num_stretches = (a.channels + kStretch - 1) / kStretch;
    for (int64_t first, last; worker.claim(num_stretches, 1, first, last);) {
        const int64_t c = first * kStretch, count = least(kStretch, a.channels - c);
        take_taps(a, own, c, count);
        for (int64_t b = 0; b < runs.num_sequences; b++)
            if (runs[b].count) conv_run(a, own, runs[b], c, count);
    }
}

}  // namespace samebits::SAMEBITS_ISA
