#include "layouts.h"

#include <stdexcept>

#include "page.h"

namespace samebits {

namespace {

// A cache [P, ps, H, D] in k_lanes or v_rows.
struct PrivateCache {
    Format format;
    bool lanes;
    int64_t num_pages, page_size, heads, row_bytes, page_bytes;

    int64_t group_bytes() const { return row_bytes * kLaneTokens; }
    int64_t row_major_at(int64_t page, int64_t slot, int64_t head) const {
        return ((page * page_size + slot) * heads + head) * row_bytes;
    }
    int64_t head_at(int64_t page, int64_t head) const { return page * page_bytes + head * page_size * row_bytes; }
};

PrivateCache private_cache(const std::string& format, const std::vector<int64_t>& shape, const std::string& layout) {
    const bool is_q8_0 = format == "q8_0", is_16_bit = format == "f16" || format == "bf16";
    const bool known = layout == "k_lanes" || layout == "v_rows";
    if (!known || !(is_q8_0 || is_16_bit) || shape.size() != 4 || shape[1] % kLaneTokens || (is_q8_0 && shape[3] % 32))
        throw std::invalid_argument("k_lanes or v_rows for f16, bf16 or q8_0 [P, ps, H, D], ps a multiple of 16");
    PrivateCache cache{Format::f16, layout == "k_lanes", shape[0], shape[1], shape[2], shape[3] * 2, 0};
    if (is_q8_0) cache.format = Format::q8_0, cache.row_bytes = shape[3] / 32 * kBlockQ8Bytes;
    cache.page_bytes = padded_page_bytes(cache.page_size * cache.heads * cache.row_bytes);
    return cache;
}

// Calls move(its row-major row, the start of its head's page, slot) for every cell.
template <class Move>
void each_cell(const PrivateCache& cache, Bytes rows, Bytes memory, Move move) {
    const int64_t row_major_bytes = cache.num_pages * cache.page_size * cache.heads * cache.row_bytes;
    if (int64_t(rows.size) != row_major_bytes || int64_t(memory.size) != cache.num_pages * cache.page_bytes)
        throw std::invalid_argument("a cache's bytes do not fit its shape");
    for (int64_t page = 0; page < cache.num_pages; page++)
        for (int64_t slot = 0; slot < cache.page_size; slot++)
            for (int64_t head = 0; head < cache.heads; head++)
                move(rows.data + cache.row_major_at(page, slot, head), memory.data + cache.head_at(page, head), slot);
}

}  // namespace

int64_t layout_bytes(const std::string& format, const std::vector<int64_t>& shape, const std::string& layout) {
    const PrivateCache cache = private_cache(format, shape, layout);
    return cache.num_pages * cache.page_bytes;
}

void to_layout(const std::string& format, const std::vector<int64_t>& shape, const std::string& layout, Bytes rows,
               Bytes memory) {
    const PrivateCache cache = private_cache(format, shape, layout);
    each_cell(cache, rows, memory, [&](const char* row, char* head, int64_t slot) {
        if (cache.lanes)
            put_lane(head + slot / kLaneTokens * cache.group_bytes(), int(slot % kLaneTokens), row, cache.format,
                     cache.row_bytes);
        else
            memcpy(head + slot * cache.row_bytes, row, size_t(cache.row_bytes));
    });
}

void from_layout(const std::string& format, const std::vector<int64_t>& shape, const std::string& layout, Bytes memory,
                 Bytes rows) {
    const PrivateCache cache = private_cache(format, shape, layout);
    each_cell(cache, rows, memory, [&](char* row, const char* head, int64_t slot) {
        if (cache.lanes)
            get_lane(head + slot / kLaneTokens * cache.group_bytes(), int(slot % kLaneTokens), row, cache.format,
                     cache.row_bytes);
        else
            memcpy(row, head + slot * cache.row_bytes, size_t(cache.row_bytes));
    });
}

}  // namespace samebits
