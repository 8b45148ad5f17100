// add, mul, sigmoid_and_mul, scale, soft_cap, cast.
#pragma once
#include "elementary.h"
#include "rows.h"

namespace samebits::SAMEBITS_ISA {

struct Sum {
    INLINE F operator()(F x, F y) const { return settle(x + y); }
};

struct Product {
    INLINE F operator()(F x, F y) const { return settle(x * y); }
};

struct SigmoidMul {
    INLINE F operator()(F x, F gate) const { return settle(x * sigmoid(gate)); }
};

struct Scaled {
    F factor;
    INLINE F operator()(F x) const { return settle(x * factor); }
};

// cap * tanh(settle(settle(x) * recip(cap))); x itself where cap is 0.
struct SoftCap {
    F cap, inverse;
    bool on;
    INLINE explicit SoftCap(float value) : cap(set(value)), inverse(recip(set(value))), on(value != 0) {}
    INLINE F operator()(F x) const { return on ? cap * tanh(settle(settle(x) * inverse)) : x; }
};

struct Capped {
    SoftCap cap;
    INLINE F operator()(F x) const { return settle(cap(x)); }
};

// Three rows in float32: two operands and the result.
inline Scratch elementwise_scratch(const Call& call, int) {
    return {size_t(3 * round_up(call.in[0]->width(), 16) * 4), 0};
}

template <class Fn>
void run_binary(const Fn& f, const Call& call, Worker& worker) {
    const Tensor &x = *call.in[0], &y = *call.in[1], &z = *call.out[0];
    const int64_t step = round_up(x.width(), 16);
    float* room = reinterpret_cast<float*>(worker.scratch);
    const float* only = y.rank < x.rank ? read_row(y, 0, room + step) : nullptr;  // one row for all
    const RowRange rows = own_rows(x, worker);
    for (int64_t i = rows.first; i < rows.last; i++) {
        const float* right = only ? only : read_row(y, i, room + step);
        float* result = write_row(z, i, room + 2 * step);
        map_row(f, read_row(x, i, room), right, result, x.width());
        finish_row(z, i, result);
    }
}

template <class Fn>
void run_unary(const Fn& f, const Call& call, Worker& worker) {
    const Tensor &x = *call.in[0], &y = *call.out[0];
    float* room = reinterpret_cast<float*>(worker.scratch);
    const RowRange rows = own_rows(x, worker);
    for (int64_t i = rows.first; i < rows.last; i++) {
        float* result = write_row(y, i, room + round_up(x.width(), 16));
        map_row(f, read_row(x, i, room), result, x.width());
        finish_row(y, i, result);
    }
}

inline void run_add(const Call& call, Worker& worker) { run_binary(Sum{}, call, worker); }      // x, y -> z
inline void run_mul(const Call& call, Worker& worker) { run_binary(Product{}, call, worker); }  // x, y -> z

inline void run_sigmoid_and_mul(const Call& call, Worker& worker) {  // x, gate -> y
    run_binary(SigmoidMul{}, call, worker);
}

inline void run_scale(const Call& call, Worker& worker) {  // x -> y; factor
    run_unary(Scaled{set(call.real(0))}, call, worker);
}

inline void run_soft_cap(const Call& call, Worker& worker) {  // x -> y; cap
    run_unary(Capped{SoftCap(call.real(0))}, call, worker);
}

inline void run_cast(const Call& call, Worker& worker) {  // x -> y; format
    const Tensor &x = *call.in[0], &y = *call.out[0];
    float* room = reinterpret_cast<float*>(worker.scratch);
    const RowRange rows = own_rows(x, worker);
    for (int64_t i = rows.first; i < rows.last; i++) narrow(y.row(i), read_row(x, i, room), y.format, x.width());
}

}  // namespace samebits::SAMEBITS_ISA
