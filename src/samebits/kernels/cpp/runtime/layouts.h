// Memory layouts that are private to native kernels: their sizes, and copies from and to row-major memory.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace samebits {

// Bytes of a tensor in a private layout; std::invalid_argument for a layout, format or shape that does not go.
int64_t layout_bytes(const std::string& format, const std::vector<int64_t>& shape, const std::string& layout);

struct Bytes {
    char* data;
    size_t size;
};

// The whole of a cache from row-major memory into a private layout, and back; sizes are checked.
void to_layout(const std::string& format, const std::vector<int64_t>& shape, const std::string& layout, Bytes rows,
               Bytes memory);
void from_layout(const std::string& format, const std::vector<int64_t>& shape, const std::string& layout, Bytes memory,
                 Bytes rows);

}  // namespace samebits
