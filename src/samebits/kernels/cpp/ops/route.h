// route: the experts that each token chooses, and their weights.
#pragma once
#include "ranking.h"
#include "softmax.h"

namespace samebits::SAMEBITS_ISA {

constexpr float kLargestBias = 0x1p80f;

struct Sigmoid {
    INLINE F operator()(F x) const { return sigmoid(x); }
};

INLINE void softmax_row(float* x, int64_t n) {
    float top;
    find_largest(x, n, top);
    normalize_row(x, n, top, nullptr);
}

// The place of the largest value, which becomes -inf: it is not found again.
INLINE int32_t take_largest(float* x, int64_t n, float& largest) {
    find_largest(x, n, largest);
    const int32_t at = find_value(x, n, largest);
    x[at] = -kInfinity;
    return at;
}

struct Router {
    int64_t num_experts, top_k;
    int scores;  // by CHOICES of kernels/cpp/table.py
    int64_t groups, groups_kept, group_best;
    bool normalizes;
    float eps, scale;
    const float* bias;  // or null
    float *score, *choice, *group_score;
    int32_t* group_kept;

    static constexpr int kSoftmax = 0, kSigmoid = 1, kChosen = 2;
    static int64_t room_bytes(int64_t experts, int64_t groups) { return (2 * round_up(experts, 16) + 2 * groups) * 4; }

    Router(const Call& call, char* room) {
        num_experts = call.in[0]->width(), top_k = call.integer(0), scores = int(call.integer(1));
        groups = call.integer(2), groups_kept = call.integer(3), group_best = call.integer(4);
        normalizes = call.flag(5), eps = call.real(6), scale = call.real(7);
        bias = call.in[1] ? call.in[1]->as<float>() : nullptr;
        score = reinterpret_cast<float*>(room), choice = score + round_up(num_experts, 16);
        group_score = choice + round_up(num_experts, 16), group_kept = reinterpret_cast<int32_t*>(group_score + groups);
    }

    // Whether there is something to choose for every rank.
    bool is_possible() const {
        if (groups < 1 || groups_kept > groups || num_experts % groups) return false;
        const int64_t size = num_experts / groups;
        return top_k <= groups_kept * size && (groups == 1 || group_best <= least(2, size));
    }

    INLINE void read_scores(const float* logits) const {
        memcpy(score, logits, size_t(num_experts) * 4);
        if (scores == kSoftmax) softmax_row(score, num_experts);
        if (scores == kSigmoid) map_row(Sigmoid{}, logits, score, num_experts);
        if (bias) map_row(Sum{}, score, bias, choice, num_experts);
        else memcpy(choice, score, size_t(num_experts) * 4);
    }

    // The sum of a group's best, which stay where they are.
    INLINE float sum_of_best(float* group, int64_t size) const {
        float best[2] = {}, sum = 0;
        int32_t at[2] = {};
        for (int64_t i = 0; i < group_best; i++) at[i] = take_largest(group, size, best[i]);
        for (int64_t i = 0; i < group_best; i++) group[at[i]] = best[i], sum += best[i];
        return sum;
    }

    // Experts of all but the best groups become -inf.
    INLINE void keep_groups() const {
        const int64_t size = num_experts / groups;
        for (int64_t g = 0; g < groups; g++) group_score[g] = sum_of_best(choice + g * size, size), group_kept[g] = 0;
        for (int64_t i = 0; i < groups_kept; i++) {
            int64_t best = -1;
            for (int64_t g = 0; g < groups; g++)
                if (!group_kept[g] && (best < 0 || group_score[g] > group_score[best])) best = g;
            group_kept[best] = 1;
        }
        for (int64_t g = 0; g < groups; g++)
            for (int64_t i = 0; i < size && !group_kept[g]; i++) choice[g * size + i] = -kInfinity;
    }

    INLINE void choose(int32_t* ids, float* weights) const {
        if (groups > 1) keep_groups();
        for (int64_t r = 0; r < top_k; r++) {
            float largest;
            ids[r] = take_largest(choice, num_experts, largest);
            weights[r] = score[ids[r]];
        }
        if (scores == kChosen) softmax_row(weights, top_k);
        if (normalizes) {
            float total = 0;
            for (int64_t r = 0; r < top_k; r++) total += weights[r];
            total += eps;
            map_row(Scaled{set(total > 0 ? recip(total) : 0.0f)}, weights, weights, top_k);
        }
        map_row(Scaled{set(scale)}, weights, weights, top_k);
    }
};

// Whether no magnitude of a row exceeds a limit, and none is NaN.
INLINE bool is_within(const float* x, int64_t n, float limit) {
    M fine = first_lanes(16);
    for (int64_t i = 0; i < n; i += 16) fine = fine & (abs(load_partial(x + i, int(least(16, n - i)))) <= set(limit));
    return all(fine);
}

inline Scratch route_scratch(const Call& call, int) {
    return {size_t(Router::room_bytes(call.in[0]->width(), call.integer(2))), 0};
}

// logits, bias? -> expert_ids, weights; top_k, scores, groups, groups_kept, group_best, normalize, eps, scale
inline void run_route(const Call& call, Worker& worker) {
    const Tensor &logits = *call.in[0], &ids = *call.out[0], &weights = *call.out[1];
    const Router router(call, worker.scratch);
    if (!router.is_possible()) return worker.fail({"top_k", "more than may be chosen", "at most the experts of kept groups"});
    if (router.bias && !is_within(router.bias, router.num_experts, kLargestBias))
        worker.fail({"bias", "NaN, Inf or a magnitude above 2^80", "finite values"});
    bool fine = true;
    const RowRange rows = own_rows(logits, worker);
    for (int64_t i = rows.first; i < rows.last; i++) {
        const float* row = reinterpret_cast<const float*>(logits.row(i));
        fine &= is_within(row, router.num_experts, 0x1.fffffep127f);
        router.read_scores(row);
        router.choose(reinterpret_cast<int32_t*>(ids.row(i)), reinterpret_cast<float*>(weights.row(i)));
    }
    if (!fine) worker.fail({"logits", "NaN or Inf", "finite values"});
}

}  // namespace samebits::SAMEBITS_ISA
