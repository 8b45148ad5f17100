// Pages and groups of the private cache layouts (ops/cache.h). Static: every instruction set compiles its own.
#pragma once
#include <cstring>

#include "tensor.h"

namespace samebits {

constexpr int kLaneTokens = 16;    // tokens side by side in a group of k_lanes
constexpr int kBlockQ8Bytes = 34;  // of q8_0: a float16 scale and 32 codes

// Bytes from one page to the next for pages with this much in them: an odd number of cache lines, so that the same
// place of neighbouring pages never falls into one set of a cache, and not nearly a multiple of 4096 either.
static inline int64_t padded_page_bytes(int64_t content_bytes) {
    int64_t lines = ((content_bytes + 63) / 64) | 1;
    if (lines % 64 == 1) lines += 2;
    if (lines % 64 == 63) lines += 4;
    return lines * 64;
}

// A page of a k_lanes or v_rows cache with the graph shape [P, ps, H, D].
static inline int64_t page_stride(const Tensor& cache) {
    return padded_page_bytes(cache.shape[1] * cache.shape[2] * cache.stride[2]);
}

// Places in a group of q8_0 keys: scales [NB][16 tokens], then codes [NB * 8][16 tokens][4].
static inline int64_t group_scale_at(int64_t block, int lane) { return (block * kLaneTokens + lane) * 2; }
static inline int64_t group_code_at(int64_t block, int lane, int64_t num_blocks, int k) {
    return num_blocks * kLaneTokens * 2 + ((block * 8 + k / 4) * kLaneTokens + lane) * 4 + k % 4;
}

// One q8_0 block into its lane, its codes with the sign bit turned over.
static inline void put_lane_block(char* group, int lane, const char* block, int64_t b, int64_t num_blocks) {
    memcpy(group + group_scale_at(b, lane), block, 2);
    for (int k = 0; k < 32; k++) group[group_code_at(b, lane, num_blocks, k)] = char(block[2 + k] ^ 0x80);
}

// A row (16-bit values or q8_0 blocks) of `row_bytes` into its lane of a k_lanes group.
static inline void put_lane(char* group, int lane, const char* row, Format format, int64_t row_bytes) {
    const int64_t num_blocks = row_bytes / kBlockQ8Bytes;
    if (format == Format::q8_0)
        for (int64_t b = 0; b < num_blocks; b++) put_lane_block(group, lane, row + b * kBlockQ8Bytes, b, num_blocks);
    else
        for (int64_t d = 0; d < row_bytes / 2; d++) memcpy(group + (d * kLaneTokens + lane) * 2, row + d * 2, 2);
}

// And back.
static inline void get_lane(const char* group, int lane, char* row, Format format, int64_t row_bytes) {
    const int64_t num_blocks = row_bytes / kBlockQ8Bytes;
    if (format != Format::q8_0)
        for (int64_t d = 0; d < row_bytes / 2; d++) memcpy(row + d * 2, group + (d * kLaneTokens + lane) * 2, 2);
    else
        for (int64_t b = 0; b < num_blocks; b++, row += kBlockQ8Bytes) {
            memcpy(row, group + group_scale_at(b, lane), 2);
            for (int k = 0; k < 32; k++) row[2 + k] = char(group[group_code_at(b, lane, num_blocks, k)] ^ 0x80);
        }
}

}  // namespace samebits
