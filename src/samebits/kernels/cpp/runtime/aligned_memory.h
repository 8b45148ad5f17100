// Memory at an alignment: C++'s std::aligned_alloc is missing on Windows, whose memory of this kind has its own free.
#pragma once
#include <cstdlib>
#include <new>

namespace samebits {

// Memory that free_aligned takes back. The alignment is a power of two of at least 8 bytes. Throws std::bad_alloc.
inline char* allocate_aligned(size_t alignment, size_t num_bytes) {
#if defined(_WIN32)
    void* memory = _aligned_malloc(num_bytes, alignment);
#else
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment, num_bytes)) memory = nullptr;
#endif
    if (!memory) throw std::bad_alloc();
    return static_cast<char*>(memory);
}

// A null pointer is allowed.
inline void free_aligned(char* memory) {
#if defined(_WIN32)
    _aligned_free(memory);
#else
    std::free(memory);
#endif
}

}  // namespace samebits
