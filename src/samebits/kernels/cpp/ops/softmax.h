// softmax over the last axis, with scale, soft cap, mask and sinks.
#pragma once
#include "elementwise.h"
#include "sums.h"

namespace samebits::SAMEBITS_ISA {

// 16 flags of a row of bools from `i` on; false from lane n on.
INLINE M load_mask(const uint8_t* flags, int64_t i, int n) {
    uint8_t lane[16] = {};
    memcpy(lane, flags + i, size_t(n));
    return to_float(load_u8(lane)) > zero();
}

struct Logits {
    const uint8_t* mask;  // null: all are kept
    F scale;
    SoftCap cap;

    // s = cap(x * scale), -inf where masked, into s; the maximum into `top`. Whether x and x * scale are valid.
    INLINE bool read(const float* x, float* s, int64_t width, float& top) const {
        F largest = set(-kInfinity);
        M fine = first_lanes(16);
        for (int64_t i = 0; i < width; i += 16) {
            const int n = int(least(16, width - i));
            const F raw = load_partial(x + i, n), scaled = raw * scale;
            fine = fine & (raw < set(kInfinity)) & (scaled < set(kInfinity));
            const F kept = select(mask ? load_mask(mask, i, n) : first_lanes(n), cap(scaled), set(-kInfinity));
            store_partial(s + i, kept, n);
            largest = max(kept, largest);
        }
        top = reduce_max(largest);
        return all(fine);
    }
};

struct ShiftedExp {
    float* s;
    F shift;
    INLINE F operator()(int64_t i, int n) const {
        const F p = select(first_lanes(n), exp(load_partial(s + i, n) - shift), zero());
        store_partial(s + i, p, n);
        return p;
    }
};

// s becomes exp(s - max) * recip(sum), the sink a term of max and sum; all 0 where there is nothing to look at.
INLINE void normalize_row(float* s, int64_t width, float top, const float* sink) {
    if (sink && *sink > top) top = *sink;
    const float shift = top == -kInfinity ? 0.0f : top;
    float total = row_sum(width, ShiftedExp{s, set(shift)});
    if (sink) total += exp(*sink - shift);
    map_row(Scaled{set(total > 0 ? recip(total) : 0.0f)}, s, s, width);
}

inline void run_softmax(const Call& call, Worker& worker) {  // x, mask?, sinks? -> y; scale, soft_cap
    const Tensor &x = *call.in[0], &y = *call.out[0];
    const Tensor *mask = call.in[1], *sinks = call.in[2];
    float* room = reinterpret_cast<float*>(worker.scratch);
    Logits logits{nullptr, set(call.real(0)), SoftCap(call.real(1))};
    bool x_fine = true, sinks_fine = true;
    const RowRange rows = own_rows(x, worker);
    for (int64_t i = rows.first; i < rows.last; i++) {
        float top, sink = 0, *s = write_row(y, i, room + round_up(x.width(), 16));
        if (mask) logits.mask = reinterpret_cast<const uint8_t*>(mask->row(mask->rank < x.rank ? 0 : i));
        if (sinks) sink = float_element(*sinks, i);
        x_fine &= logits.read(read_row(x, i, room), s, x.width(), top);
        sinks_fine &= sink < kInfinity;
        normalize_row(s, x.width(), top, sinks ? &sink : nullptr);
        finish_row(y, i, s);
    }
    if (!x_fine) worker.fail({"x", "NaN or +Inf, in x or in x * scale", "finite values or -Inf"});
    if (!sinks_fine) worker.fail({"sinks", "NaN or +Inf", "finite values or -Inf"});
}

}  // namespace samebits::SAMEBITS_ISA
