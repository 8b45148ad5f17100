// What the warps of a block of decode.cu share, and what it is launched with.
#pragma once
#include "stretches.cuh"

static constexpr int WARPS = CUT_RUNS / 2, THREADS = 32 * WARPS;  // that compute
static constexpr int HEADS_UP = HEADS == 3 ? 4 : HEADS;
static constexpr int SLOT_BYTES = RUN * D * 2;
static constexpr int SCORES = (RUN + 1) * HEADS_UP;  // of a run, and the sums of its weights
static constexpr int QUERY_BYTES = D * (WIDE_Q ? 4 : 2);

struct Pointers {
    const void* q;
    const float* sinks;
    void* out;
    float *far, *cuts;  // scores that shared memory has no room for; sums of cuts
    int *fault, *counters;
};

struct Numbers {
    int q_token, q_head, window, most_cuts, most_count, far_room, num_slots;
    int is_second;  // of a call: the launch before reads what this one reads, and began when what wrote that had ended
    float scale;
};

struct Shared {
    alignas(16) u8 queries[2][HEADS * QUERY_BYTES];
    Stretch stretches[2];
    u64 full[2], empty[2], queried[2], may_draw, copied[WARPS][SLOTS], used[WARPS][SLOTS];
    float largest[WARPS][HEADS_UP], joined[HEADS_UP];
    int is_last;
};
