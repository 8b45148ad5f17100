// copy_slots: whole slots of a state onto others.
#pragma once
#include "copy_pages.h"

namespace samebits::SAMEBITS_ISA {

inline void run_copy_slots(const Call& call, Worker& worker) {  // state, sources, targets -> state
    const Tensor& state = *call.in[0];
    const int32_t *sources = call.in[1]->as<int32_t>(), *targets = call.in[2]->as<int32_t>();
    const int64_t count = call.in[1]->shape[0];
    if (check_copies(sources, targets, count, state.shape[0], worker))
        copy_pages(state, sources, targets, count, worker);
}

}  // namespace samebits::SAMEBITS_ISA
