"""Memory of a thread's own: kernels whose tensors have one element a thread, which are its registers.

Every thread has its own addresses: of global memory, and in bytes of shared memory, which a kernel's folder declares.
Where PTX does not exist (EMULATE) a buffer of the launch, `shared_ptr`, takes the place of shared memory. Global memory
is read and written by PTX too: what Triton's passes would do for the layout of every such load and store takes minutes,
and there is nothing to choose.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.elementary import from_bits
from samebits.kernels.triton.lib.registry import EMULATE

THREADS = tl.constexpr(128)
COMMIT = tl.constexpr("cp.async.commit_group; mov.b32 $0, 0;")
WAIT_ALL = tl.constexpr("cp.async.wait_group 0; mov.b32 $0, 0;")
WAIT_BUT_ONE = tl.constexpr("cp.async.wait_group 1; mov.b32 $0, 0;")
KEPT = "{ .reg .pred kept; setp.ne.b32 kept, %s, 0; %s }"  # a predicate's operand, then statements that may ask for it
_COPY = tl.constexpr("cp.async.cg.shared.global [$1], [$2], 16, $3; mov.b32 $0, 0;")
_LOAD_PER_THREAD = tl.constexpr(KEPT % ("$2", "mov.b32 $0, 0; @kept ld.global.b32 $0, [$1];"))
_STORE_PER_THREAD = tl.constexpr(KEPT % ("$3", "@kept st.global.b32 [$1], $2; mov.b32 $0, 0;"))
_LOAD_SHARED = tl.constexpr("ld.shared.f32 $0, [$1];")
_LOAD_FOUR = tl.constexpr("ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];")
_STORE_SHARED = tl.constexpr("st.shared.f32 [$1], $2; mov.b32 $0, 0;")
_FOUR = tl.constexpr((tl.float32,) * 4)


@triton.jit
def copies(TEXT: tl.constexpr):
    """COMMIT, WAIT_ALL or WAIT_BUT_ONE: the copies this thread started since the last COMMIT are a group."""
    if not EMULATE:
        tl.inline_asm_elementwise(TEXT, "=r,r", [tl.arange(0, THREADS)], tl.int32, False, 1)


@triton.jit
def start_copy(shared_ptr, place, source, kept):
    """Sixteen bytes of numbers from `source` to `place`, both at multiples of 16; zeros where not kept."""
    if EMULATE:
        WORD: tl.constexpr = tl.int16 if source.dtype.element_ty.primitive_bitwidth == 16 else tl.int32
        for n in tl.static_range(128 // WORD.primitive_bitwidth):
            x = tl.load(source + n, mask=kept, other=0.0).to(WORD, bitcast=True)
            tl.store(shared_ptr.to(tl.pointer_type(WORD)) + place // (WORD.primitive_bitwidth // 8) + n, x)
    else:
        args = [place, source.to(tl.int64), tl.where(kept, 16, 0)]
        tl.inline_asm_elementwise(_COPY, "=r,r,l,r", args, tl.int32, False, 1)


@triton.jit
def load_per_thread(pointers, kept):
    """One float32 a thread, +0 where not kept."""
    if EMULATE:
        return tl.load(pointers, mask=kept, other=0.0)
    args = [pointers.to(tl.int64), kept.to(tl.int32)]
    return from_bits(tl.inline_asm_elementwise(_LOAD_PER_THREAD, "=&r,l,r", args, tl.int32, False, 1))


@triton.jit
def store_per_thread(pointers, x, kept):
    """One float32 or int32 a thread."""
    if EMULATE:
        tl.store(pointers, x, mask=kept)
    else:
        args = [pointers.to(tl.int64), x.to(tl.int32, bitcast=True), kept.to(tl.int32)]
        tl.inline_asm_elementwise(_STORE_PER_THREAD, "=r,l,r,r", args, tl.int32, False, 1)


@triton.jit
def load_shared(shared_ptr, place):
    """The float32 at `place`."""
    if EMULATE:
        return tl.load(shared_ptr.to(tl.pointer_type(tl.float32)) + place // 4)
    return tl.inline_asm_elementwise(_LOAD_SHARED, "=f,r", [place], tl.float32, False, 1)


@triton.jit
def load_four(shared_ptr, place):
    """Four float32 side by side at `place`, a multiple of 16."""
    if EMULATE:
        four = ()
        for n in tl.static_range(4):
            four += (tl.load(shared_ptr.to(tl.pointer_type(tl.float32)) + place // 4 + n),)
        return four
    return tl.inline_asm_elementwise(_LOAD_FOUR, "=f,=f,=f,=f,r", [place], _FOUR, False, 1)


@triton.jit
def store_shared(shared_ptr, place, x):
    """One float32 a thread."""
    if EMULATE:
        tl.store(shared_ptr.to(tl.pointer_type(tl.float32)) + place // 4, x)
    else:
        tl.inline_asm_elementwise(_STORE_SHARED, "=r,r,f", [place, x], tl.int32, False, 1)
