// How blocks share sequences with one query: stretches of whole cuts, of one part of the heads each.
#pragma once
#include "pipeline.cuh"
#include "sequences.cuh"

static constexpr int RUN = 16, CUT = 256, CUT_RUNS = CUT / RUN;

// Cuts of one sequence and part that one block takes; a count of 0 where none is left.
struct Stretch {
    int sequence, token, part, entry, length, low;  // low: the first position that is seen
    int first_run, end_run;                         // of the stretch
    int count;                                      // of stretches of its sequence and part
};

struct Stretches {
    const Batch& batch;
    int window, most_cuts, most_count;  // cuts of a stretch; stretches of a sequence and part, which count more

    // Of a sequence: its first cut, its cuts, and those of a stretch.
    __device__ __forceinline__ int cuts_of(const Sequence& s, int& first, int& per_stretch) const {
        first = WINDOW ? max(s.length - 1 - window, 0) / CUT : 0;
        const int cuts = s.count == 1 ? (s.length + CUT - 1) / CUT - first : 0;
        const int count = min((cuts + most_cuts - 1) / most_cuts, most_count);
        per_stretch = count ? (cuts + count - 1) / count : 1;
        return cuts;
    }
    __device__ __forceinline__ int count_of(const Sequence& s) const {
        int first, per_stretch;
        return (cuts_of(s, first, per_stretch) + per_stretch - 1) / per_stretch;
    }

    // A stretch by its number among all; a whole warp asks.
    __device__ __forceinline__ Stretch at(int number) const {
        const int lane = threadIdx.x % 32;
        for (int b = 0; b < batch.num_sequences; b += 32) {
            Sequence s = batch.at(b + lane);
            const int own = count_of(s) * PARTS, up_to = up_to_lane(own, lane);
            const int which = __popc(__ballot_sync(~0u, up_to <= number));
            if (which < 32) {
                s.first = __shfl_sync(~0u, s.first, which), s.count = 1;
                s.entry = __shfl_sync(~0u, s.entry, which), s.length = __shfl_sync(~0u, s.length, which);
                return within(b + which, s, number - __shfl_sync(~0u, up_to - own, which));
            }
            number -= __shfl_sync(~0u, up_to, 31);
        }
        return {};
    }

    __device__ __forceinline__ Stretch within(int b, const Sequence& s, int number) const {
        int first, per_stretch;
        const int cuts = cuts_of(s, first, per_stretch), count = (cuts + per_stretch - 1) / per_stretch;
        Stretch x = {b, s.first, number / count, s.entry, s.length};
        x.low = WINDOW ? max(s.length - 1 - window, 0) : 0;
        x.count = count;
        const int cut = first + number % count * per_stretch;
        x.first_run = max(cut * CUT_RUNS, x.low / RUN);
        x.end_run = min((cut + per_stretch) * CUT_RUNS, (s.length + RUN - 1) / RUN);
        return x;
    }
};
