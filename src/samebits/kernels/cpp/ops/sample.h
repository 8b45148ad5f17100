// sample: bias, penalties, temperature, top-k, top-p, min-p, then argmax(x + Gumbel noise), a row at a time.
#pragma once
#include "ranking.h"
#include "threefry.h"

namespace samebits::SAMEBITS_ISA {

enum SampleInput {
    kLogits, kSeed, kSampleIndex, kPosition, kTemperature, kTopK, kTopP, kMinP,
    kBias, kCounts, kRepetition, kPresence, kFrequency
};

constexpr float kMassOne = 0x1p28f;
constexpr int32_t kMostCounts = 1 << 24;

// A row's room: buckets of the cuts, its logits padded with -inf to whole vectors, and the mass of each token.
struct SampleRoom {
    int64_t* buckets;
    float *logits, *x;
    uint32_t* mass;

    SampleRoom(char* scratch, int64_t num_tokens) {
        buckets = reinterpret_cast<int64_t*>(scratch);
        logits = reinterpret_cast<float*>(buckets + kNumBuckets);
        x = logits + round_up(num_tokens, 16);
        mass = reinterpret_cast<uint32_t*>(x + round_up(num_tokens, 16));
    }
};

inline Scratch sample_scratch(const Call& call, int) {
    return {kBucketBytes + size_t(round_up(call.in[kLogits]->shape[1], 16)) * 12, 0};
}

struct FloatBound {
    int input;
    float low, high;
    Failure failure;
};
constexpr FloatBound kFloatBounds[] = {
    {kTemperature, 0, 1e6f, {"temperature", "a value out of bounds", "0, or 0.0001 .. 1000000"}},
    {kTopP, 0x1p-16f, 1, {"top_p", "a value out of bounds", "2^-16 .. 1"}},
    {kMinP, 0, 1, {"min_p", "a value out of bounds", "0 .. 1"}},
    {kRepetition, 1e-3f, 1e3f, {"repetition", "a value out of bounds", "0.001 .. 1000"}},
    {kPresence, -1e3f, 1e3f, {"presence", "a value out of bounds", "-1000 .. 1000"}},
    {kFrequency, -1e3f, 1e3f, {"frequency", "a value out of bounds", "-1000 .. 1000"}},
};
struct IndexBound {
    int input;
    Failure failure;
};
constexpr IndexBound kIndexBounds[] = {
    {kTopK, {"top_k", "a negative number", "0 or more"}},
    {kSampleIndex, {"sample_index", "a negative number", "0 or more"}},
    {kPosition, {"position", "a negative number", "0 or more"}},
};

// What is wrong with the settings of one row, or null.
inline const Failure* find_bad_setting(const Call& call, int64_t row) {
    for (const FloatBound& bound : kFloatBounds) {
        if (!call.in[bound.input]) continue;
        const float value = call.in[bound.input]->as<float>()[row];
        const bool too_cold = bound.input == kTemperature && value > 0 && value < 1e-4f;
        if (!(value >= bound.low && value <= bound.high) || too_cold) return &bound.failure;
    }
    for (const IndexBound& bound : kIndexBounds)
        if (call.in[bound.input]->as<int32_t>()[row] < 0) return &bound.failure;
    return nullptr;
}

struct Penalties {
    const int32_t* counts;  // of each token of the row; null: none
    F repetition, inverse_repetition, presence, frequency;

    INLINE Penalties(const Call& call, int64_t row) : counts(nullptr) {
        if (!call.in[kCounts]) return;
        counts = reinterpret_cast<const int32_t*>(call.in[kCounts]->row(row));
        repetition = set(call.in[kRepetition]->as<float>()[row]);
        inverse_repetition = recip(repetition);
        presence = set(call.in[kPresence]->as<float>()[row]);
        frequency = set(call.in[kFrequency]->as<float>()[row]);
    }

    INLINE bool valid(int64_t num_tokens) const {
        bool wrong = false;
        for (int64_t i = 0; counts && i < num_tokens; i++) wrong |= counts[i] < 0 || counts[i] > kMostCounts;
        return !wrong;
    }

    INLINE F operator()(F x, int64_t i, int n) const {
        int32_t lane[16] = {};
        memcpy(lane, counts + i, size_t(n) * 4);
        const F count = to_float(load(lane));
        const F repeated = select(x > zero(), x * inverse_repetition, x * repetition);
        return settle(select(count > zero(), (repeated - count * frequency) - presence, x));
    }
};

constexpr Failure kBadLogits{"logits", "NaN, +Inf, or a row that is empty or all -Inf", "a finite logit in every row"};
constexpr Failure kBadBias{"bias", "NaN, +Inf or a row that leaves no token", "a finite logit in every row"};
constexpr Failure kBadCounts{"counts", "a value out of bounds", "0 .. 2^24"};
constexpr Failure kOverflow{"logits", "a row whose largest logit, after bias, penalties and temperature, is infinite",
                            "a largest logit within float32's range"};

// Logits with bias and penalties into room.x, padded with -inf; what is wrong with them, or null.
inline const Failure* read_logits(const Call& call, int64_t row, const SampleRoom& room) {
    const int64_t num_tokens = call.in[kLogits]->shape[1];
    const float* logits = read_row(*call.in[kLogits], row, room.logits);
    const float* bias = call.in[kBias] ? reinterpret_cast<const float*>(call.in[kBias]->row(row)) : nullptr;
    const Penalties penalties(call, row);
    const F lowest = set(-kInfinity);
    F top = lowest, biased_top = lowest;
    M logits_fine = first_lanes(16), bias_fine = first_lanes(16);
    for (int64_t i = 0; i < num_tokens; i += 16) {
        const int n = int(least(16, num_tokens - i));
        F x = select(first_lanes(n), load_partial(logits + i, n), lowest);
        logits_fine = logits_fine & (x < set(kInfinity));
        top = max(x, top);
        if (bias) {
            const F added = load_partial(bias + i, n);
            bias_fine = bias_fine & (added < set(kInfinity));
            x = settle(x + added);
        }
        biased_top = max(x, biased_top);
        store(room.x + i, penalties.counts ? penalties(x, i, n) : x);
    }
    if (!all(logits_fine) || reduce_max(top) == -kInfinity) return &kBadLogits;
    if (!all(bias_fine) || reduce_max(biased_top) == -kInfinity) return &kBadBias;
    return penalties.valid(num_tokens) ? nullptr : &kBadCounts;
}

// The front part of the ranking that holds top_p of the mass, rounded to integers: before * 2^16 < top_p * total.
inline Cut find_top_p(float top_p, float top, int64_t num_tokens, const SampleRoom& room) {
    int64_t total = 0;
    for (int64_t i = 0; i < num_tokens; i += 16) {
        alignas(64) float weight[16];
        store(weight, exp(load(room.x + i) - set(top)) * set(kMassOne));
        for (int j = 0; j < 16; j++) {  // from 2^23 on a float is an integer
            const float rounded = weight[j] < 0x1p23f ? (weight[j] + 0x1p23f) - 0x1p23f : weight[j];
            room.mass[i + j] = uint32_t(rounded);
            total += room.mass[i + j];
        }
    }
    const int64_t part = int64_t(first(round_to_int(set(top_p * 65536.0f))));
    const int64_t limit = part * (total >> 16) + ((part * (total & 0xFFFF) + 0xFFFF) >> 16);  // rounded up, no overflow
    const uint32_t* mass = room.mass;
    return find_cut(room.x, num_tokens, [=](int64_t i) { return int64_t(mass[i]); }, limit, room.buckets);
}

// argmax of x + noise over what min-p leaves, the lowest token among equals.
inline int32_t draw(const float* x, int64_t num_tokens, float top, float min_p, const Words& key) {
    alignas(64) int32_t token[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    I best_token = set(0), tokens = load(token);
    F best = set(-kInfinity);
    for (int64_t i = 0; i < num_tokens; i += 16, tokens = tokens + set(16)) {
        const F v = load(x + i);
        M kept = v > set(-kInfinity);
        if (!any(kept)) continue;
        if (min_p > 0) kept = kept & (exp(v - set(top)) >= set(min_p));
        const F noisy = v + gumbel(key, tokens);
        const M better = kept & (noisy > best);
        best = select(better, noisy, best);
        best_token = select(better, tokens, best_token);
    }
    alignas(64) float value[16];
    store(value, best);
    store(token, best_token);
    int first = 0;
    for (int i = 1; i < 16; i++)
        if (value[i] > value[first] || (value[i] == value[first] && token[i] < token[first])) first = i;
    return token[first];
}

inline bool is_finite(float x) { return x > -kInfinity && x < kInfinity; }

// Choose the token of one row whose logits, with bias and penalties, lie in room.x. Return what is wrong, or null.
inline const Failure* choose_token(const Call& call, int64_t row, const SampleRoom& room, int32_t& token) {
    const int64_t num_tokens = call.in[kLogits]->shape[1];
    const float temperature = call.in[kTemperature]->as<float>()[row], top_p = call.in[kTopP]->as<float>()[row];
    const int64_t top_k = call.in[kTopK]->as<int32_t>()[row];
    float top;
    find_largest(room.x, num_tokens, top);
    if (temperature == 0) {
        token = find_value(room.x, num_tokens, top);
        return is_finite(top) ? nullptr : &kOverflow;
    }
    const F inverse = recip(set(temperature));
    for (int64_t i = 0; i < num_tokens; i += 16) store(room.x + i, settle(load(room.x + i) * inverse));
    find_largest(room.x, num_tokens, top);
    if (!is_finite(top)) return &kOverflow;
    if (top_k > 0 && top_k < num_tokens)
        keep_front(find_cut(room.x, num_tokens, OneEach{}, top_k, room.buckets), room.x, room.x, num_tokens);
    if (top_p < 1) keep_front(find_top_p(top_p, top, num_tokens, room), room.x, room.x, num_tokens);
    const int32_t* seed = reinterpret_cast<const int32_t*>(call.in[kSeed]->row(row));
    const int32_t sample_index = call.in[kSampleIndex]->as<int32_t>()[row];
    const int32_t position = call.in[kPosition]->as<int32_t>()[row];
    const Words key = threefry({set(seed[0]), set(seed[1])}, {set(sample_index), set(position)});
    token = draw(room.x, num_tokens, top, call.in[kMinP]->as<float>()[row], key);
    return nullptr;
}

inline void run_sample(const Call& call, Worker& worker) {  // logits, ... in the order of SampleInput -> tokens
    int num_penalties = 0;
    for (int input = kCounts; input <= kFrequency; input++) num_penalties += call.in[input] != nullptr;
    if (num_penalties != 0 && num_penalties != 4)
        return worker.fail({"penalties", "some of them", "all of counts, repetition, presence, frequency"});
    const Tensor& logits = *call.in[kLogits];
    const SampleRoom room(worker.scratch, logits.shape[1]);
    int32_t* tokens = call.out[0]->as<int32_t>();
    int64_t first, last;
    worker.share(logits.shape[0], first, last);
    for (int64_t row = first; row < last; row++) {
        const Failure* wrong = find_bad_setting(call, row);
        if (!wrong) wrong = read_logits(call, row, room);
        tokens[row] = 0;
        if (!wrong) wrong = choose_token(call, row, room, tokens[row]);
        if (wrong) worker.fail(*wrong);
    }
}

}  // namespace samebits::SAMEBITS_ISA
