// The sequences of a batch, as kernels/triton/attention/fast/tile.py has them: a false index cannot leave the arrays.
#pragma once

// The sum of a lane's number and those of lower lanes.
__device__ __forceinline__ int up_to_lane(int x, int lane) {
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        const int below = __shfl_up_sync(~0u, x, i);
        if (lane >= i) x += below;
    }
    return x;
}

struct Sequence {
    int first, count, entry, length;  // first query, queries, first entry of the table, positions
};

struct Batch {
    const int *qo_indptr, *kv_last, *kv_indptr, *kv_indices;
    int num_sequences, num_tokens, num_indices, num_pages, page_size, most_rows;

    __device__ __forceinline__ Sequence at(int b) const {
        Sequence s = {0, 0, b, 0};
        if (b >= num_sequences) return s;
        s.first = qo_indptr[b], s.count = qo_indptr[b + 1] - s.first;
        const int last = min(max(kv_last[b], 0), page_size);
        if (HAS_TABLE) {
            s.entry = kv_indptr[b];
            const int pages = kv_indptr[b + 1] - s.entry;
            s.length = s.entry >= 0 && pages > 0 && s.entry + pages <= num_indices ? (pages - 1) * PAGE + last : 0;
        } else {
            s.length = last;
        }
        if (s.first < 0 || s.count <= 0 || s.first + s.count > num_tokens) s.count = 0;
        return s;
    }

    // Whether a sequence lies within the arrays.
    __device__ __forceinline__ bool is_sound(int b) const {
        const int first = qo_indptr[b], count = qo_indptr[b + 1] - first, last = kv_last[b];
        const int entry = HAS_TABLE ? kv_indptr[b] : b, pages = HAS_TABLE ? kv_indptr[b + 1] - entry : 1;
        const int least = HAS_TABLE && pages > 0, most = pages > 0 ? page_size : 0;
        const int room = HAS_TABLE ? num_indices : num_pages;
        return entry >= 0 && pages >= 0 && entry + pages <= room && last >= least && last <= most && first >= 0 && count >= 0
               && first + count <= num_tokens;
    }

    // Tiles of Rows rows that a sequence has here: none where it has few.
    template <int Rows, int Group>
    __device__ __forceinline__ int tiles(const Sequence& s) const {
        return s.count * Group > most_rows ? (s.count * Group + Rows - 1) / Rows : 0;
    }

    template <int Rows, int Group>
    __device__ __forceinline__ int num_tiles() const {
        int sum = 0;
        for (int b = threadIdx.x % 32; b < num_sequences; b += 32) sum += tiles<Rows, Group>(at(b));
        return __reduce_add_sync(~0u, sum);
    }

    // The sequence of a tile, by its number among all, which becomes that in the sequence.
    template <int Rows, int Group>
    __device__ __forceinline__ Sequence at_tile(int& tile) const {
        const int lane = threadIdx.x % 32;
        for (int b = 0; b < num_sequences; b += 32) {
            const int own = tiles<Rows, Group>(at(b + lane)), up_to = up_to_lane(own, lane);
            const int which = __popc(__ballot_sync(~0u, up_to <= tile));
            if (which < 32) {
                tile -= __shfl_sync(~0u, up_to - own, which);
                return at(b + which);
            }
            tile -= __shfl_sync(~0u, up_to, 31);
        }
        return {0, 0, 0, 0};
    }

    // A page of a sequence; beyond the last one, that, and one that does not exist is the cache's last.
    __device__ __forceinline__ int page(const Sequence& s, int index, int last_index) const {
        return (int)min((unsigned)kv_indices[s.entry + min(index, last_index)], (unsigned)(num_pages - 1));
    }
};
