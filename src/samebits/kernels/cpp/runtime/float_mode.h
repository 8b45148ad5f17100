// Whether the arithmetic of a thread treats subnormal float32 numbers as zero. No result of a kernel depends on it:
// verify runs them both ways.
#pragma once
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace samebits {

#if defined(__x86_64__)
constexpr uint32_t kFlushBits = 0x8040;  // MXCSR: results flushed to zero, operands that are subnormal taken as zero
inline bool flushes_subnormals() { return (_mm_getcsr() & kFlushBits) == kFlushBits; }
inline void flush_subnormals(bool on) { _mm_setcsr(on ? _mm_getcsr() | kFlushBits : _mm_getcsr() & ~kFlushBits); }
#elif defined(__aarch64__)
constexpr uint64_t kFlushBits = uint64_t(1) << 24;  // FPCR.FZ: both
inline uint64_t float_control() {
    uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
inline bool flushes_subnormals() { return float_control() & kFlushBits; }
inline void flush_subnormals(bool on) {
    const uint64_t mode = on ? float_control() | kFlushBits : float_control() & ~kFlushBits;
    asm volatile("msr fpcr, %0" ::"r"(mode));
}
#else
inline bool flushes_subnormals() { return false; }
inline void flush_subnormals(bool) {}
#endif

}  // namespace samebits
