// copy_kv_pages: whole pages of a cache onto others, in any layout.
#pragma once
#include "cache.h"

namespace samebits::SAMEBITS_ISA {

inline bool check_copies(const int32_t* sources, const int32_t* targets, int64_t count, int64_t num_pages,
                         Worker& worker) {
    if (!check_index_range(sources, count, num_pages, "sources", worker) ||
        !check_index_range(targets, count, num_pages, "targets", worker))
        return false;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < count; j++) {
            if (targets[i] == sources[j])
                return refuse(worker, {"targets", "a source too", "places that nothing is copied from"});
            if (targets[i] == targets[j] && i != j)
                return refuse(worker, {"targets", "a place twice", "every target once"});
        }
    return true;
}

inline void copy_pages(const Tensor& cache, const int32_t* sources, const int32_t* targets, int64_t count,
                       Worker& worker) {
    const bool is_private = cache.layout != Layout::row_major;
    const int64_t content = is_private ? cache.shape[1] * cache.shape[2] * cache.stride[2] : cache.stride[0];
    const int64_t stride = is_private ? page_stride(cache) : cache.stride[0];
    int64_t first, last;
    worker.share(count, first, last);
    for (int64_t i = first; i < last; i++)
        memcpy(cache.data + targets[i] * stride, cache.data + sources[i] * stride, size_t(content));
}

inline void run_copy_kv_pages(const Call& call, Worker& worker) {  // k_cache, sources, targets, v_cache
    const Tensor &k = *call.in[0], *v = call.in[3];
    const int32_t *sources = call.in[1]->as<int32_t>(), *targets = call.in[2]->as<int32_t>();
    const int64_t count = call.in[1]->shape[0];
    if (!v == (k.rank == 4)) return worker.fail({"v_cache", "another kind of cache", "values beside a split k_cache"});
    if (!check_copies(sources, targets, count, k.shape[0], worker)) return;
    copy_pages(k, sources, targets, count, worker);
    if (v) copy_pages(*v, sources, targets, count, worker);
}

}  // namespace samebits::SAMEBITS_ISA
