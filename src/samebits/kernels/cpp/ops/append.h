// append_paged_kv_cache, rope_and_append: new keys and values into their cells, a thread its own tokens.
#pragma once
#include "cache.h"
#include "kv_codec.h"
#include "rope.h"

namespace samebits::SAMEBITS_ISA {

struct Append {
    const Tensor *key, *value;  // value: null for an MLA cache
    const int32_t *batch_indices, *positions;
    KvCache cache;
    PageTable table;
};

// Arguments of append_paged_kv_cache from `in` on, after key and value; false where the reference refuses them.
// That no two tokens share a cell and no two sequences a page is not looked for: it would cost more than the step.
inline bool append_args(const Call& call, const Tensor* const* in, bool heads_first, Worker& worker, Append& a) {
    a.key = call.in[0];
    a.value = call.in[1];
    a.batch_indices = in[0]->as<int32_t>();
    a.positions = in[1]->as<int32_t>();
    const Tensor& k = *in[2];
    if (!a.value != (k.rank == 3))
        return refuse(worker, {"value", "one too many or few", "one, except with an MLA cache"});
    const int64_t k_dim = a.key->width(), v_dim = a.value ? a.value->width() : k_dim;
    if (!cache_views(k, in[4], heads_first, k_dim, v_dim, a.cache, worker)) return false;
    if (a.cache.k.heads != a.key->shape[1]) return refuse(worker, {"key", "another number of heads", "the cache's"});
    a.table = page_table(in[5], in[6], *in[3], a.cache.k);
    return a.table.check(worker);
}

// One head's row into its cell; `room` holds an encoded row on its way into lanes.
INLINE bool store_cell(const CacheView& view, int64_t page, int64_t head, int64_t slot, const float* x, int64_t size,
                       char* room) {
    if (view.layout != Layout::k_lanes) return encode_row(x, size, view.format, view.row(page, head, slot));
    const bool held = encode_row(x, size, view.format, room);
    put_lane(view.group(page, head, slot), int(slot % kLaneTokens), room, view.format, view.row_bytes);
    return held;
}

// Calls turn.start(token), then turn(x, room) on each of its rows of keys: the row to store, x itself or the room.
template <class Turn>
INLINE void append_tokens(const Append& a, Worker& worker, Turn& turn) {
    const int64_t k_dim = a.key->width(), v_dim = a.value ? a.value->width() : 0, heads = a.cache.k.heads;
    float* wide = reinterpret_cast<float*>(worker.scratch);
    float* turned = wide + round_up(most(k_dim, v_dim), 16);
    char* encoded = reinterpret_cast<char*>(turned + round_up(k_dim, 16));
    int64_t first, last;
    worker.share(a.key->shape[0], first, last);
    for (int64_t token = first; token < last; token++) {
        const int64_t b = a.batch_indices[token], position = a.positions[token];
        if (b < 0 || b >= a.table.num_sequences)
            return worker.fail({"batch_indices", "an index out of range", "a sequence of the table"});
        if (position < 0 || position >= a.table.length(b))
            return worker.fail({"positions", "a place outside the sequence", "0 .. length - 1"});
        const int64_t page = a.table.page(b, position / a.table.page_size), slot = position % a.table.page_size;
        turn.start(token);
        for (int64_t head = 0; head < heads; head++) {
            const int64_t row = token * heads + head;
            const float* key = turn(read_row(*a.key, row, wide), turned);
            if (!store_cell(a.cache.k, page, head, slot, key, k_dim, encoded))
                worker.fail({"key", "a value the cache's format cannot hold", "finite values in its range"});
            if (a.value && !store_cell(a.cache.v, page, head, slot, read_row(*a.value, row, wide), v_dim, encoded))
                worker.fail({"value", "a value the cache's format cannot hold", "finite values in its range"});
        }
    }
}

struct NoTurn {
    void start(int64_t) {}
    const float* operator()(const float* x, float*) { return x; }
};

inline void run_append(const Call& call, Worker& worker) {
    Append a;
    NoTurn turn;
    if (append_args(call, call.in + 2, call.flag(0), worker, a)) append_tokens(a, worker, turn);
}

// Rotates heads as `rope` does.
struct RopeTurn {
    const Tensor& table;
    const int32_t* positions;
    int64_t size;
    bool interleave;
    float *cos, *sin;

    void start(int64_t token) {
        const char* angles = table.data + positions[token] * table.stride[0];
        spread_angles(reinterpret_cast<const float*>(angles), interleave, cos, sin, table.shape[1]);
    }
    const float* operator()(const float* x, float* room) {
        rotate_head(x, cos, sin, interleave, room, size, table.shape[1]);
        return room;
    }
};

inline int64_t append_floats(const Call& call) {
    const int64_t k_dim = call.in[0]->width(), v_dim = call.in[1] ? call.in[1]->width() : 0;
    return round_up(most(k_dim, v_dim), 16) + 2 * round_up(k_dim, 32);
}

inline void run_rope_and_append(const Call& call, Worker& worker) {
    const Tensor &positions = *call.in[2], &table = *call.in[3];
    const int64_t size = call.in[0]->width();
    Append a;
    if (!append_args(call, call.in + 4, call.flag(1), worker, a)) return;
    const int32_t* rows = positions.as<int32_t>();
    if (!check_index_range(rows, positions.shape[0], table.shape[0], "pos_ids", worker)) return;
    if (2 * table.shape[1] > size) return worker.fail({"table", "a larger rotary size", "at most the head size"});
    float* angles = reinterpret_cast<float*>(worker.scratch) + append_floats(call);
    RopeTurn turn{table, rows, size, call.flag(0), angles, angles + size};
    append_tokens(a, worker, turn);
}

// A row as float32, turned, and encoded; cos and sin for at most a head.
inline Scratch append_scratch(const Call& call, int) {
    return {size_t(append_floats(call) + 2 * call.in[0]->width()) * 4, 0};
}

}  // namespace samebits::SAMEBITS_ISA
