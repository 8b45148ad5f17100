// embedding: rows of a table by id, from rows16 or as they are stored.
#pragma once
#include "gemm_vnni.h"

namespace samebits::SAMEBITS_ISA {

// Row `row` of a group in rows16 as float32.
template <class W>
inline void decode_row(const uint8_t* group, int row, int64_t blocks, float tensor_scale, float* to) {
    const uint8_t* codes = group + W::scales_bytes(blocks);
    for (int64_t b = 0; b < blocks; b++) {
        alignas(64) float d[16], m[16], e[2][16], sub[2][16], min[2][16];
        const BlockScales s = load_scales<W>(W::scales_at(group, b), int(b % W::span), 2.0f * tensor_scale);
        store(d, s.d), store(m, s.m);
        for (int h = 0; h < 2; h++) store(e[h], s.e[h]), store(sub[h], to_float(s.sub[h])), store(min[h], s.min[h]);
        for (int k = 0; k < kBlock; k++) {
            const float q = float(W::get(codes + b * W::code_bytes, row, k) - W::bias);
            const int h = is_halved(W::term) ? k / 16 : 0;
            float& x = to[b * kBlock + k];
            if constexpr (W::term == Term::scale) x = d[row] * q;
            else if constexpr (W::term == Term::offset) x = d[row] * q + m[row];
            else if constexpr (has_offset(W::term)) x = (d[row] * sub[h][row]) * q + m[row] * min[h][row];
            else if constexpr (W::has_e4m3) x = ((q * 0.5f) * e[h][row]) * d[row];
            else x = (d[row] * sub[h][row]) * q;
            x = settle(x);
        }
    }
}

inline void decode_plain_row(const uint8_t* group, int row, int64_t width, Format format, char* room, float* to) {
    const size_t size = size_t(plain_bytes(format));
    for (int64_t k = 0; k < width; k++) memcpy(room + size_t(k) * size, group + (size_t(k) * kGroup + size_t(row)) * size, size);
    widen(to, room, format, width);
}

inline void run_embedding(const Call& call, Worker& worker) {  // table, ids -> y
    const Tensor &table = *call.in[0], &y = *call.out[0];
    const int32_t* ids = call.in[1]->as<int32_t>();
    const int64_t width = table.width(), room_bytes = round_up(width * 4, 64);
    float* room = reinterpret_cast<float*>(worker.scratch);
    uint8_t* group = reinterpret_cast<uint8_t*>(worker.scratch + 2 * room_bytes);
    int64_t first, last;
    worker.share(y.shape[0], first, last);
    for (int64_t i = first; i < last; i++) {
        if (ids[i] < 0 || ids[i] >= table.shape[0]) {
            worker.fail({"ids", "an id outside the table", "0 .. its number of rows - 1"});
            continue;
        }
        float* result = write_row(y, i, room);
        if (table.layout != Layout::rows16 && !is_block(table.format)) {
            widen(result, table.row(ids[i]), table.format, width);
        } else {
            const uint8_t* from = reinterpret_cast<const uint8_t*>(table.data) + size_t(ids[i] / kGroup) * group_bytes(table.format, width);
            int row = ids[i] % kGroup;
            if (table.layout != Layout::rows16) {
                pack_groups(table.row(ids[i]), 0, table.format, 1, width, 0, 1, group);
                from = group, row = 0;
            }
            if (!is_block(table.format)) decode_plain_row(from, row, width, table.format, worker.scratch + room_bytes, result);
            with_block_format(table.format, [&](auto f) {
                decode_row<decltype(f)>(from, row, width / kBlock, table.scale, result);
            });
        }
        finish_row(y, i, result);
    }
}

inline Scratch embedding_scratch(const Call& call, int) {
    const Tensor& table = *call.in[0];
    return {size_t(2 * round_up(table.width() * 4, 64)) + group_bytes(table.format, table.width()) + 64, 0};
}

}  // namespace samebits::SAMEBITS_ISA
