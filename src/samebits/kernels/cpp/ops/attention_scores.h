// Products of attention for any cache: a query with 16 keys at a time, and one weight with a row of values.
#pragma once
#include "cache.h"
#include "kv_codec.h"

namespace samebits::SAMEBITS_ISA {

// A query as the keys' format wants it: rounded to their type, or int8 blocks for a quantized cache.
struct QueryOperand {
    float* x;
    int8_t* codes;
    float* scales;

    // False for values that the product does not allow. `from` may be x.
    bool assign(const float* from, int64_t size, Format keys) {
        M wrong = first_lanes(0);
        for (int64_t i = 0; i < round_up(size, kBlock); i += 16) {
            const F v = load_partial(from + i, int(most(0, least(16, size - i))));
            store(x + i, operand(round_to(v, keys), keys, wrong));
        }
        const bool quantized = keys == Format::q8_0 || keys == Format::q4_0;
        return !any(wrong) && (!quantized || quantize_blocks(x, round_up(size, kBlock) / kBlock, codes, scales));
    }
};

// Sum of q[d] * key(d) in head order: runs of 8, each a chain, joined by an adjacent-pair tree. Partial trees wait on a
// stack; one of 2^n runs joins its equal. A tree that is not full needs no +0: no run is ever -0.
template <class Key>
INLINE F head_dot(const float* q, int64_t size, Key key) {
    F waiting[40];
    int depth = 0;
    for (int64_t start = 0, run = 0; start < size; start += kHeadRun, run++) {
        F sum = zero();
        for (int64_t d = start; d < least(start + kHeadRun, size); d++) sum = sum + set(q[d]) * key(d);
        for (int64_t bit = run; bit & 1; bit >>= 1) sum = waiting[--depth] + sum;
        waiting[depth++] = sum;
    }
    F sum = depth ? waiting[--depth] : zero();
    while (depth) sum = waiting[--depth] + sum;
    return sum;
}

// Block terms in chunks of 8 for a group of q8_0 keys. Lanes with a scale that is not finite go into `wrong`.
INLINE F block_dot(const QueryOperand& q, int64_t num_blocks, const char* group, M& wrong) {
    F total = zero();
    for (int64_t first = 0; first < num_blocks; first += kChunkBlocks) {
        F chunk = zero();
        for (int64_t b = first; b < least(first + kChunkBlocks, num_blocks); b++) {
            I sum = set(int32_t(0));
            int32_t code_sum = 0;
            for (int i = 0; i < kBlock; i++) code_sum += q.codes[b * kBlock + i];
            for (int i = 0; i < 8; i++) {
                int32_t four;
                memcpy(&four, q.codes + b * kBlock + 4 * i, 4);
                sum = dot_8bit(sum, load_bytes(group_codes(group, num_blocks, b * 8 + i)), four);
            }
            sum = sum - set(int32_t(kBias8 * code_sum));
            const F scale = operand(load_f16(group_scales(group, b)), Format::f16, wrong);
            chunk = chunk + to_float(sum) * (scale * set(q.scales[b]));
        }
        total = total + chunk;
    }
    return total;
}

// Scores of a group of 16 keys: as in k_lanes, float32 [D][16] for f32 keys, q8_0 codes for q4_0 keys.
// Lanes with a stored value that is no operand go into `wrong`.
INLINE F group_scores(const QueryOperand& q, const CacheView& k, int64_t size, const char* group, M& wrong) {
    const float* wide = reinterpret_cast<const float*>(group);
    switch (k.format) {
        case Format::f32: return head_dot(q.x, size, [=](int64_t d) { return load(wide + d * kLaneTokens); });
        case Format::f16:
            return head_dot(q.x, size, [&](int64_t d) {
                return operand(load_f16(group_elements(group, d)), Format::f16, wrong);
            });
        case Format::bf16:
            return head_dot(q.x, size, [&](int64_t d) {
                return operand(load_bf16(group_elements(group, d)), Format::bf16, wrong);
            });
        default: return block_dot(q, k.num_blocks(), group, wrong);
    }
}

// A q4_0 block as a q8_0 one.
INLINE void widen_q4_0(const char* block, char* to) {
    memcpy(to, block, 2);
    for (int j = 0; j < 16; j++) {
        to[2 + j] = char((block[2 + j] & 15) - 8);
        to[18 + j] = char(((block[2 + j] >> 4) & 15) - 8);
    }
}

// Rows of positions first .. stop - 1 (at most 16, inside one run) into their lanes of a group; others are left alone.
inline void gather_group(const CacheView& k, const PageTable& table, int64_t sequence, int64_t head, int64_t first,
                         int64_t stop, char* group) {
    for (int64_t position = first; position < stop; position++) {
        const char* row = k.row(table.page(sequence, position / k.page_size), head, position % k.page_size);
        const int lane = int(position % kLaneTokens);
        if (k.format == Format::f32) {
            for (int64_t d = 0; d < k.head_size; d++) memcpy(group + (d * kLaneTokens + lane) * 4, row + d * 4, 4);
        } else if (k.format != Format::q4_0) {
            put_lane(group, lane, row, k.format, k.row_bytes);
        } else {
            char block[kBlockQ8Bytes];
            for (int64_t b = 0; b < k.num_blocks(); b++) {
                widen_q4_0(row + b * kBlockQ4Bytes, block);
                put_lane_block(group, lane, block, b, k.num_blocks());
            }
        }
    }
}

// sum += p * a row of values, p rounded to their type; `room` holds the row as float32. Sums of block formats go over
// whole blocks.
INLINE void add_value(const CacheView& v, const char* row, int64_t size, float p, float* room, float* sum, M& wrong) {
    if (v.format == Format::q8_0 || v.format == Format::q4_0) {
        char block[kBlockQ8Bytes];
        for (int64_t b = 0; b < v.num_blocks(); b++, sum += kBlock) {
            if (v.format == Format::q8_0) memcpy(block, row + b * kBlockQ8Bytes, kBlockQ8Bytes);
            else widen_q4_0(row + b * kBlockQ4Bytes, block);
            const F scale = operand(set(half_value(block)), Format::f16, wrong);
            const F weight = round_f16(set(p) * scale);
            const int8_t* codes = reinterpret_cast<const int8_t*>(block + 2);
            store(sum, load(sum) + weight * to_float(load_i8(codes)));
            store(sum + 16, load(sum + 16) + weight * to_float(load_i8(codes + 16)));
        }
        return;
    }
    M fine = first_lanes(0);
    const F weight = operand(round_to(set(p), v.format), v.format, fine);
    widen(room, row, v.format, size);
    for (int64_t i = 0; i < size; i += 16) {
        F value = load_partial(room + i, int(least(16, size - i)));
        if (v.format != Format::f32) value = operand(value, v.format, wrong);
        store(sum + i, load(sum + i) + weight * value);
    }
}

}  // namespace samebits::SAMEBITS_ISA
