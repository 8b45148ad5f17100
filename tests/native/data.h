// Inputs that are the same on every machine, and a hash of results.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {  // each file's own, compiled with its own flags

// A stream of numbers by itself: the standard library's may differ from one system to the next.
class Numbers {
  public:
    explicit Numbers(const char* name) {
        for (; *name; name++) state_ = (state_ ^ uint8_t(*name)) * 0x100000001B3u;
    }
    uint32_t word() {  // splitmix64
        uint64_t z = state_ += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return uint32_t((z ^ (z >> 31)) >> 32);
    }
    int32_t between(int32_t low, int32_t high) {
        return low + int32_t(uint64_t(word()) * (int64_t(high) - low + 1) >> 32);
    }
    float real(float low, float high) { return low + (high - low) * (float(word() >> 8) * 0x1p-24f); }

  private:
    uint64_t state_ = 0xCBF29CE484222325u;
};

// FNV-1a over the bytes of results. Which of its patterns a NaN has is left open, so all NaNs count as one.
class Hash {
  public:
    void bytes(const void* data, size_t size) {
        const uint8_t* p = static_cast<const uint8_t*>(data);
        for (size_t i = 0; i < size; i++) value_ = (value_ ^ p[i]) * 0x100000001B3u;
    }
    void real(float x) {
        uint32_t u;
        memcpy(&u, &x, 4);
        if (x != x) u = 0x7FC00000;
        bytes(&u, 4);
    }
    void half(uint16_t h) {
        if ((h & 0x7FFF) > 0x7C00) h = 0x7E00;
        bytes(&h, 2);
    }
    uint64_t value() const { return value_; }

  private:
    uint64_t value_ = 0xCBF29CE484222325u;
};

// One line of output: the instruction set, what was computed, the hash of its results.
[[maybe_unused]] void report(const char* isa, const char* name, const Hash& hash) {
    printf("%s %s %016llx\n", isa, name, static_cast<unsigned long long>(hash.value()));
}

}  // namespace
