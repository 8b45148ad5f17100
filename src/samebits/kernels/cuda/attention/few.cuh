// What the warps of a block of few.cu share, and what it is launched with.
#pragma once
#include "fragments.cuh"
#include "pieces.cuh"

static constexpr int WARPS = 8;                    // that compute
static constexpr int SLOT_BYTES = RUN * D * 2;     // of a run's keys, or values
static constexpr int QUERY_BYTES = D * (WIDE_Q ? 4 : 2);

struct Pointers {
    const void* q;
    const float* sinks;
    void* out;
    float *lse, *part_sums, *part_walked;  // of pieces: [slot][ROWS][D], [slot][ROWS][most, total]
    int *fault, *counters;
};

struct Numbers {
    int bad_query, bad_page, q_token, q_head, window;
    float scale;
};

struct Shared {
    alignas(16) u8 queries[2][ROWS * QUERY_BYTES];
    Piece pieces[2];
    u64 full[2], empty[2], queried[2], joined, copied[2][WARPS][SLOTS], used[2][WARPS][SLOTS];  // [keys, values]
    int is_last;
};

// Sums of the warps of a block, in rows that lie so far apart that a warp's writes meet no bank twice.
struct Joined {
    float sums[WARPS][ROWS][D + 4], most[WARPS][ROWS], total[WARPS][ROWS];
};
