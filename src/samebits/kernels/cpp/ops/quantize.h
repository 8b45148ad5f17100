// quantize_q8: activations to int8 in blocks of 32.
#pragma once
#include "elementary.h"
#include "rows.h"
#include "sums.h"

namespace samebits::SAMEBITS_ISA {

constexpr float kInverse127 = float(1.0 / 127.0), kSmallestAmax = 0x1p-43f, kLargestAmax = 0x1p80f;

// Codes and scales of blocks of 32; whether all their values are finite and none is beyond 2^80.
INLINE bool quantize_blocks(const float* x, int64_t num_blocks, int8_t* codes, float* scales) {
    M fine = first_lanes(16);
    for (int64_t start = 0; start < num_blocks; start += 16) {  // 16 blocks, so that one recip serves them all
        const int count = int(least(16, num_blocks - start));
        alignas(64) float amax[16] = {}, to_code[16];
        for (int j = 0; j < count; j++) {
            const float* block = x + (start + j) * kBlock;
            const F low = abs(load(block)), high = abs(load(block + 16));
            fine = fine & (low <= set(kLargestAmax)) & (high <= set(kLargestAmax));
            amax[j] = reduce_max(max(low, high));
        }
        const F top = load(amax);
        const M alive = top >= set(kSmallestAmax);
        store(to_code, select(alive, set(127.0f) * recip(top), zero()));
        store_partial(scales + start, select(alive, top * set(kInverse127), zero()), count);
        for (int j = 0; j < count; j++) {
            const int64_t at = (start + j) * kBlock;
            const F factor = set(to_code[j]);
#pragma GCC unroll 2
            for (int half = 0; half < kBlock; half += 16) {
                const F rounded = load(x + at + half) * factor + set(kRoundMagic);
                store_i8(codes + at + half, bits(rounded) - set(kRoundMagicBits));
            }
        }
    }
    return all(fine);
}

inline Scratch quantize_scratch(const Call& call, int) { return {size_t(call.in[0]->width() * 4), 0}; }

inline void run_quantize_q8(const Call& call, Worker& worker) {  // x -> codes, scales
    const Tensor &x = *call.in[0], &codes = *call.out[0], &scales = *call.out[1];
    float* room = reinterpret_cast<float*>(worker.scratch);
    bool fine = true;
    const RowRange rows = own_rows(x, worker);
    for (int64_t i = rows.first; i < rows.last; i++) {
        int8_t* code_row = reinterpret_cast<int8_t*>(codes.row(i));
        float* scale_row = reinterpret_cast<float*>(scales.row(i));
        fine &= quantize_blocks(read_row(x, i, room), x.width() / kBlock, code_row, scale_row);
    }
    if (!fine) worker.fail({"x", "NaN, Inf or a magnitude above 2^80", "finite values"});
}

}  // namespace samebits::SAMEBITS_ISA
