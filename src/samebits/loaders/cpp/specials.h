// Special tokens in a text: those of a list are cut out one after another, each wherever it stands in what is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tables.h"

namespace samebits {

// A stretch of text, or a special token where `token` is not UNKNOWN.
struct Part {
    int32_t begin, end, token;
};

class SpecialCutter {
public:
    // The tokens' bytes in the order in which they are cut out, and their ids; every token once, none without bytes.
    SpecialCutter(std::string_view data, const uint32_t* ends, const int32_t* ids, size_t num_tokens)
        : table_(data, ends, num_tokens), data_(data), ids_(ids, ids + num_tokens), is_start_(1 << 16, false) {
        uint32_t begin = 0;
        for (size_t i = 0; i < num_tokens; begin = ends[i++]) {
            const std::string_view text = std::string_view(data_).substr(begin, ends[i] - begin);
            texts_.push_back(text);
            sizes_.insert(text.size());
            for (size_t second = 0; second < 256; second++)
                if (text.size() == 1 || uint8_t(text[1]) == second) is_start_[size_t(uint8_t(text[0])) << 8 | second] = true;
        }
    }
    SpecialCutter(const SpecialCutter&) = delete;  // `texts_` look into `data_`

    std::vector<Part> cut(std::string_view text) const {
        std::vector<Part> parts, next;
        if (!text.empty()) parts.push_back({0, int32_t(text.size()), UNKNOWN});
        const std::vector<bool> is_there = find_present(text);
        for (size_t i = 0; i < texts_.size(); i++) {
            if (!is_there[i]) continue;
            next.clear();
            for (const Part& part : parts) cut_part(text, part, i, next);
            parts.swap(next);
        }
        return parts;
    }

private:
    // Which tokens stand anywhere in the text: a look at every place, so that a rare token costs no search of its own.
    std::vector<bool> find_present(std::string_view text) const {
        std::vector<bool> is_there(texts_.size(), false);
        for (size_t at = 0; at < text.size(); at++) {
            const size_t second = at + 1 < text.size() ? uint8_t(text[at + 1]) : 0;
            if (!is_start_[size_t(uint8_t(text[at])) << 8 | second]) continue;
            for (size_t size : sizes_) {
                if (size > text.size() - at) break;
                if (const int32_t i = table_.find(text.substr(at, size)); i != UNKNOWN) is_there[size_t(i)] = true;
            }
        }
        return is_there;
    }

    void cut_part(std::string_view text, const Part& part, size_t i, std::vector<Part>& out) const {
        if (part.token != UNKNOWN) return out.push_back(part);
        const std::string_view token = texts_[i];
        size_t begin = size_t(part.begin);
        const std::string_view searched = text.substr(0, size_t(part.end));
        for (size_t at; (at = searched.find(token, begin)) != searched.npos;) {
            if (at > begin) out.push_back({int32_t(begin), int32_t(at), UNKNOWN});
            begin = at + token.size();
            out.push_back({int32_t(at), int32_t(begin), ids_[i]});
        }
        if (begin < searched.size()) out.push_back({int32_t(begin), part.end, UNKNOWN});
    }

    TextTable table_;
    std::string data_;
    std::vector<int32_t> ids_;
    std::vector<bool> is_start_;  // by a token's first two bytes
    std::vector<std::string_view> texts_;
    std::set<size_t> sizes_;
};

}  // namespace samebits
