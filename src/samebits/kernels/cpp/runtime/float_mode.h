// The floating-point mode of a thread, and the mode that kernels run in: round to nearest even, no traps, NaNs as they
// come. The definitions of all ops are given in that mode. The caller decides one thing alone: whether subnormal float32
// numbers count as zero. No result of a kernel depends on it: verify runs them both ways.
#pragma once
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace samebits {

using FloatMode = uint64_t;

#if defined(__x86_64__)
constexpr FloatMode kFlushBits = 0x8040;  // MXCSR: results flushed to zero, operands that are subnormal taken as zero
constexpr FloatMode kUsualMode = 0x1f80;  // all exceptions masked, rounding to nearest, no flags raised
inline FloatMode float_mode() { return _mm_getcsr(); }
inline void set_float_mode(FloatMode mode) { _mm_setcsr(uint32_t(mode)); }
#elif defined(__aarch64__)
constexpr FloatMode kFlushBits = FloatMode(1) << 24;  // FPCR.FZ: both
constexpr FloatMode kUsualMode = 0;
inline FloatMode float_mode() {
    FloatMode mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode)::"memory");
    return mode;
}
inline void set_float_mode(FloatMode mode) { asm volatile("msr fpcr, %0" ::"r"(mode) : "memory"); }
#else
constexpr FloatMode kFlushBits = 0, kUsualMode = FE_TONEAREST;
inline FloatMode float_mode() { return FloatMode(std::fegetround()); }
inline void set_float_mode(FloatMode mode) { std::fesetround(int(mode)); }
#endif

inline bool flushes_subnormals() { return kFlushBits != 0 && (float_mode() & kFlushBits) == kFlushBits; }
inline void flush_subnormals(bool on) {
    set_float_mode(on ? float_mode() | kFlushBits : float_mode() & ~kFlushBits);
}

// The mode of kernels for a caller in this mode.
inline FloatMode kernel_mode(FloatMode caller) { return kUsualMode | (caller & kFlushBits); }

// While it lives, this thread runs in the mode of kernels; then in the mode it had before.
class KernelMode {
  public:
    KernelMode() : caller_(float_mode()) { set_float_mode(kernel_mode(caller_)); }
    ~KernelMode() { set_float_mode(caller_); }
    KernelMode(const KernelMode&) = delete;

  private:
    const FloatMode caller_;
};

}  // namespace samebits
