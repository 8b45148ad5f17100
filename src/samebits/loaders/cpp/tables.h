// What merging looks up: pairs of tokens, and tokens by their bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "merging.h"

namespace samebits {

// Pairs of tokens and what they become: a row for each left token, its right ones in order.
class PairTable {
public:
    // `pairs`: left, right and join by rank, three int32 each; of a pair that is repeated the first rank counts.
    PairTable(const int32_t* pairs, size_t num_pairs, int32_t num_tokens) : starts_(size_t(num_tokens) + 1, 0) {
        for (size_t i = 0; i < 3 * num_pairs; i++)
            if (pairs[i] < 0 || pairs[i] >= num_tokens) throw std::invalid_argument("merges: an id out of range");
        for (size_t i = 0; i < num_pairs; i++) starts_[size_t(pairs[3 * i]) + 1]++;
        for (size_t i = 1; i < starts_.size(); i++) starts_[i] += starts_[i - 1];
        cells_.resize(num_pairs);
        std::vector<uint32_t> filled(starts_.begin(), starts_.end() - 1);
        for (size_t i = 0; i < num_pairs; i++)
            cells_[filled[size_t(pairs[3 * i])]++] = {pairs[3 * i + 1], {uint32_t(i), pairs[3 * i + 2]}};
        for (size_t row = 0; row + 1 < starts_.size(); row++)
            std::stable_sort(cells_.begin() + starts_[row], cells_.begin() + starts_[row + 1],
                             [](const Cell& a, const Cell& b) { return a.right < b.right; });
    }

    Join find(int32_t left, int32_t right) const {
        if (left < 0 || right < 0) return {};
        const auto first = cells_.begin() + starts_[size_t(left)], last = cells_.begin() + starts_[size_t(left) + 1];
        const auto cell = std::lower_bound(first, last, right, [](const Cell& c, int32_t r) { return c.right < r; });
        return cell != last && cell->right == right ? cell->join : Join{};
    }

    size_t num_ranks() const { return cells_.size(); }

private:
    struct Cell {
        int32_t right;
        Join join;
    };
    std::vector<uint32_t> starts_;
    std::vector<Cell> cells_;
};

// Tokens by their bytes. A token without bytes is never found.
class TextTable {
public:
    // `ends`: where each token's bytes end in `data`, ascending and within it.
    TextTable(std::string_view data, const uint32_t* ends, size_t num_tokens)
        : data_(data), ends_(ends, ends + num_tokens), slots_(num_slots(num_tokens), UNKNOWN) {
        uint32_t start = 0;
        for (size_t i = 0; i < num_tokens; start = ends_[i++]) {
            if (ends_[i] < start || ends_[i] > data_.size()) throw std::invalid_argument("texts: an end out of range");
            if (ends_[i] == start) continue;
            max_bytes_ = std::max<size_t>(max_bytes_, ends_[i] - start);
            size_t slot = hash(text(int32_t(i)));
            while (slots_[slot] != UNKNOWN) slot = (slot + 1) & (slots_.size() - 1);
            slots_[slot] = int32_t(i);
        }
    }

    int32_t find(std::string_view bytes) const {
        if (bytes.size() > max_bytes_) return UNKNOWN;
        for (size_t slot = hash(bytes);; slot = (slot + 1) & (slots_.size() - 1))
            if (const int32_t id = slots_[slot]; id == UNKNOWN || text(id) == bytes) return id;
    }

private:
    static size_t num_slots(size_t num_tokens) {
        size_t n = 16;
        while (n < 2 * num_tokens) n *= 2;
        return n;
    }

    std::string_view text(int32_t id) const {
        const uint32_t start = id ? ends_[size_t(id) - 1] : 0;
        return std::string_view(data_).substr(start, ends_[size_t(id)] - start);
    }

    // Eight bytes at a time, each step a product of 128 bits whose halves are folded. Begins with a number that no
    // file's author knows, who could else make texts that all want one slot.
    size_t hash(std::string_view bytes) const {
        static const uint64_t start = uint64_t(std::random_device{}()) << 32 | std::random_device{}();
        uint64_t h = start ^ bytes.size();
        while (!bytes.empty()) {
            uint64_t part = 0;
            const size_t n = std::min<size_t>(bytes.size(), 8);
            std::memcpy(&part, bytes.data(), n);
            const unsigned __int128 product = static_cast<unsigned __int128>(h ^ part) * 0x9E3779B97F4A7C15u;
            h = uint64_t(product) ^ uint64_t(product >> 64);
            bytes.remove_prefix(n);
        }
        return size_t(h) & (slots_.size() - 1);
    }

    std::string data_;
    std::vector<uint32_t> ends_;
    std::vector<int32_t> slots_;
    size_t max_bytes_ = 0;
};

}  // namespace samebits
