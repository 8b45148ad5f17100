// Arrays of strings as GGUF files hold them: eight bytes of length before each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace samebits {

// Strings one after another, and where they ended in the file.
struct Strings {
    std::string text;
    std::vector<int64_t> lengths;
    size_t position = 0;
};

// Reads `count` strings from `position`. False, with nothing to be used, where one has more than `max_bytes` or runs
// past `end`.
inline bool read_strings(const uint8_t* data, size_t position, size_t end, size_t count, uint64_t max_bytes,
                         Strings& found) {
    for (size_t i = 0; i < count; i++) {
        if (position > end || end - position < 8) return false;
        uint64_t length = 0;
        for (int byte = 7; byte >= 0; byte--) length = length << 8 | data[position + size_t(byte)];
        position += 8;
        if (length > max_bytes || length > end - position) return false;
        found.text.append(reinterpret_cast<const char*>(data) + position, size_t(length));
        found.lengths.push_back(int64_t(length));
        position += size_t(length);
    }
    found.position = position;
    return true;
}

}  // namespace samebits
