// Paged key/value caches as kernels see them: page tables, and where a cell lies in each layout.
//   row_major  ops/paged.py: split [P, ps, H, D] or [P, H, ps, D], unified [P, 2, ...], MLA [P, ps, D]
//   k_lanes    a page is [H][ps/16] groups of 16 tokens. f16, bf16: a group is [D][16 tokens]. q8_0, NB blocks:
//              float16 scales [NB][16 tokens], then codes [NB * 8][16 tokens][4 elements], each xor 0x80
//   v_rows     a page is [H][ps] rows, as in row_major
// Private pages lie page_stride() apart. Cells that were never written hold anything: select or skip, never multiply.
#pragma once
#include "../runtime/page.h"
#include "base.h"

namespace samebits::SAMEBITS_ISA {

// Which pages hold a sequence, in token order. Without indptr and indices, page b is the whole of sequence b.
struct PageTable {
    const int32_t *indptr, *indices, *last;
    int64_t num_sequences, num_indices, num_pages, page_size;
    bool half_given;  // one of indptr and indices without the other

    int64_t count(int64_t b) const { return indptr ? indptr[b + 1] - indptr[b] : 1; }  // pages of a sequence
    int64_t page(int64_t b, int64_t i) const { return indptr ? indices[indptr[b] + i] : b; }
    int64_t length(int64_t b) const {  // tokens
        const int64_t pages = count(b);
        return pages ? page_size * (pages - 1) + last[b] : 0;
    }
    // No sequence is longer, whatever the table holds once it is checked.
    int64_t longest() const { return page_size * (indptr ? num_indices : 1); }
    bool check(Worker& worker) const;
};

INLINE bool refuse(Worker& worker, const Failure& failure) {
    worker.fail(failure);
    return false;
}

// 0 = indptr[0] <= indptr[1] <= ... <= indptr[count] = total.
inline bool check_indptr(const int32_t* indptr, int64_t count, int64_t total, const char* argument, Worker& worker) {
    if (indptr[0] != 0) return refuse(worker, {argument, "another first entry", "0 first"});
    for (int64_t i = 0; i < count; i++)
        if (indptr[i + 1] < indptr[i])
            return refuse(worker, {argument, "an entry that falls", "entries that never fall"});
    if (indptr[count] != total) return refuse(worker, {argument, "another last entry", "the total"});
    return true;
}

inline bool check_index_range(const int32_t* index, int64_t count, int64_t limit, const char* argument,
                              Worker& worker) {
    const uint32_t bound = uint32_t(least(limit, int64_t(1) << 31));  // no index is as large
    uint32_t wrong = 0;                                               // without a branch, so that it goes in lanes
    for (int64_t i = 0; i < count; i++) wrong |= uint32_t(index[i]) >= bound;
    return wrong ? refuse(worker, {argument, "an index out of range", "0 .. size - 1"}) : true;
}

// What keeps reads inside the cache.
inline bool PageTable::check(Worker& worker) const {
    if (half_given) return refuse(worker, {"kv_indptr", "one of kv_indptr and kv_indices", "both or neither"});
    if (!indptr && num_sequences > num_pages) return refuse(worker, {"k_cache", "too few pages", "one per sequence"});
    if (indptr && !(check_indptr(indptr, num_sequences, num_indices, "kv_indptr", worker) &&
                    check_index_range(indices, num_indices, num_pages, "kv_indices", worker)))
        return false;
    for (int64_t b = 0; b < num_sequences; b++) {
        const int64_t pages = count(b), smallest = indptr && pages ? 1 : 0, largest = pages ? page_size : 0;
        if (last[b] < smallest || last[b] > largest)
            return refuse(worker, {"kv_last_page_len", "a length outside the page", "1 .. page size, 0 without pages"});
    }
    return true;
}

// Keys or values of a cache. `head_size` counts stored elements: whole blocks for a block format.
struct CacheView {
    char* data = nullptr;
    Format format = Format::f32;
    Layout layout = Layout::row_major;
    int64_t num_pages = 0, page_size = 0, heads = 0, head_size = 0;
    int64_t page_bytes = 0, head_bytes = 0, slot_bytes = 0;  // from one to the next; k_lanes has no slot_bytes
    int64_t row_bytes = 0;                                   // of one cell of one head

    // row_major, v_rows: the cell of one head.
    char* row(int64_t page, int64_t head, int64_t slot) const {
        return data + page * page_bytes + head * head_bytes + slot * slot_bytes;
    }
    // k_lanes: the group of 16 tokens that has this slot; the slot's lane is slot % 16.
    int64_t group_bytes() const { return row_bytes * kLaneTokens; }
    char* group(int64_t page, int64_t head, int64_t slot) const {
        return data + page * page_bytes + head * head_bytes + slot / kLaneTokens * group_bytes();
    }
    int64_t num_blocks() const { return head_size / 32; }
};

// Inside a group of k_lanes. 16-bit formats: the 16 tokens' element d.
INLINE const uint16_t* group_elements(const char* group, int64_t d) {
    return reinterpret_cast<const uint16_t*>(group) + d * kLaneTokens;
}
// q8_0: the 16 tokens' float16 scales of a block, and 4 codes of each token: elements 4 * quad .. 4 * quad + 3.
INLINE const uint16_t* group_scales(const char* group, int64_t block) {
    return reinterpret_cast<const uint16_t*>(group) + block * kLaneTokens;
}
INLINE const char* group_codes(const char* group, int64_t num_blocks, int64_t quad) {
    return group + num_blocks * kLaneTokens * 2 + quad * kLaneTokens * 4;
}

// A tensor [P, ps, H, D] or, with heads_first, [P, H, ps, D]; `skip` axes lie between P and those (unified: 1).
INLINE CacheView split_view(const Tensor& t, bool heads_first, int skip = 0) {
    const int slot_axis = 1 + skip + heads_first, head_axis = 2 + skip - heads_first;
    CacheView v{t.data, t.format, t.layout, t.shape[0], t.shape[slot_axis], t.shape[head_axis], t.width()};
    v.row_bytes = t.stride[t.rank - 2];
    v.page_bytes = t.stride[0];
    v.head_bytes = t.stride[head_axis];
    v.slot_bytes = t.stride[slot_axis];
    if (t.layout == Layout::row_major) return v;
    v.page_bytes = page_stride(t);
    v.head_bytes = v.page_size * v.row_bytes;
    v.slot_bytes = t.layout == Layout::v_rows ? v.row_bytes : 0;
    return v;
}

// An MLA cache [P, ps, D]: one head, of which the first head_size elements count.
INLINE CacheView mla_view(const Tensor& t, int64_t head_size) {
    CacheView v{t.data, t.format, t.layout, t.shape[0], t.shape[1], 1, head_size};
    v.row_bytes = t.stride[1];
    v.page_bytes = t.stride[0];
    v.slot_bytes = t.stride[1];
    return v;
}

struct KvCache {
    CacheView k, v;
};

// Elements a head takes in a cache of that format.
INLINE int64_t stored_elements(int64_t head_size, Format format) {
    return format == Format::q8_0 || format == Format::q4_0 ? round_up(head_size, 32) : head_size;
}

// Both sides of a split, unified or MLA cache for heads of these sizes; false for tensors that do not carry them.
inline bool cache_views(const Tensor& k, const Tensor* v, bool heads_first, int64_t k_dim, int64_t v_dim,
                        KvCache& cache, Worker& worker) {
    if (v ? k.rank != 4 : k.rank == 4)
        return refuse(worker, {"v_cache", "a split cache mixed with another kind", "values beside a split k_cache"});
    if (k.rank == 3) {
        cache = {mla_view(k, k.width()), mla_view(k, v_dim)};
        if (v_dim > k_dim || stored_elements(1, k.format) != 1)
            return refuse(worker, {"k_cache", "an MLA cache", "f32, f16 or bf16 and v_dim at most that of q"});
    } else if (v) {
        cache = {split_view(k, heads_first), split_view(*v, heads_first)};
    } else {
        cache = {split_view(k, heads_first, 1), split_view(k, heads_first, 1)};
        cache.v.data += k.stride[1];
    }
    if (cache.k.head_size != stored_elements(k_dim, k.format) ||
        cache.v.head_size != stored_elements(v_dim, cache.v.format))
        return refuse(worker, {"k_cache", "heads of another size", "whole heads in the cache's format"});
    return true;
}

INLINE PageTable page_table(const Tensor* indptr, const Tensor* indices, const Tensor& last, const CacheView& k) {
    const bool paged = indptr && indices;
    return {paged ? indptr->as<int32_t>() : nullptr, paged ? indices->as<int32_t>() : nullptr, last.as<int32_t>(),
            last.shape[0], paged ? indices->shape[0] : 0, k.num_pages, k.page_size, !indptr != !indices};
}

}  // namespace samebits::SAMEBITS_ISA
