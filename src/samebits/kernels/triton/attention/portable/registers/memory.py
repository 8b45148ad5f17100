"""Memory as this folder's kernel uses it, beyond lib/threads.py: several numbers a thread at once.

Shared memory is three tiles of 64 rows of 256 bytes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.elementary import bits, from_bits
from samebits.kernels.triton.lib.registry import EMULATE
from samebits.kernels.triton.lib.rows import narrow, store_narrow, widen
from samebits.kernels.triton.lib.settling import settle_to
from samebits.kernels.triton.lib.threads import KEPT, store_per_thread

M, N = tl.constexpr(64), tl.constexpr(64)  # rows of a tile, positions of a tile
ROW_BYTES, TILE_BYTES = tl.constexpr(256), tl.constexpr(64 * 256)
NUM_TILES = 3

_MEMORY = tl.constexpr(f"{{ .shared .align 1024 .b8 tiles[{NUM_TILES * 64 * 256}]; mov.u32 $0, tiles; }}")
_PREFETCH = tl.constexpr("prefetch.global.L2 [$1]; mov.b32 $0, 0;")
_ZEROS = "mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0;"
_LOAD_WORDS = tl.constexpr(KEPT % ("$5", _ZEROS + " @kept ld.global.v4.b32 {$0, $1, $2, $3}, [$4];"))
_STORE_WORDS = tl.constexpr(KEPT % ("$6", "@kept st.global.v4.b32 [$1], {$2, $3, $4, $5}; mov.b32 $0, 0;"))
_ROWS = "st.global.v4.f32 [$1], {$2, $3, $4, $5}; @kept st.global.v4.f32 [$1+16], {$6, $7, $8, $9};"
_STORE_ROWS = tl.constexpr(KEPT % ("$10", f"@kept {_ROWS} mov.b32 $0, 0;"))
_LOAD_RUN = tl.constexpr(" ".join(f"ld.global.f32 ${n}, [$16+{n * 256}];" for n in range(16)))
_LOAD_RUN_CONSTRAINTS = tl.constexpr(",".join(["=&f"] * 16 + ["l"]))
_STORE_PIECE = tl.constexpr("st.shared.v4.b32 [$1], {$2, $3, $4, $5}; mov.b32 $0, 0;")
_STORE_RUN = tl.constexpr(" ".join(f"st.shared.b32 [$1+{n * 256}], ${n + 2};" for n in range(16)) + " mov.b32 $0, 0;")
_STORE_RUN_CONSTRAINTS = tl.constexpr(",".join(["=r,r"] + ["f"] * 16))
_SIXTEEN = tl.constexpr((tl.float32,) * 16)
_WORDS = tl.constexpr((tl.int32,) * 4)


@triton.jit
def shared_memory(thread):
    """The address of three tiles, bits 0-9 zero."""
    if EMULATE:
        return thread * 0
    return tl.inline_asm_elementwise(_MEMORY, "=r,r", [thread], tl.int32, False, 1)


@triton.jit
def prefetch(pointers):
    """Asks for the lines at the pointers; nothing depends on it."""
    if not EMULATE:
        tl.inline_asm_elementwise(_PREFETCH, "=r,l", [pointers], tl.int32, False, 1)


@triton.jit
def store_piece(shared_ptr, place, words):
    """Four int32 a thread at `place`."""
    if EMULATE:
        for n in tl.static_range(4):
            tl.store(shared_ptr + place // 4 + n, words[n])
    else:
        args = [place, words[0], words[1], words[2], words[3]]
        tl.inline_asm_elementwise(_STORE_PIECE, "=r,r,r,r,r,r", args, tl.int32, False, 1)


@triton.jit
def store_run(shared_ptr, place, w):
    """Sixteen float32 a thread, each a row below the one before."""
    if EMULATE:
        for n in tl.static_range(16):
            tl.store(shared_ptr.to(tl.pointer_type(tl.float32)) + place // 4 + n * (ROW_BYTES // 4), w[n])
    else:
        args = [place, w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]]
        args += [w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15]]
        tl.inline_asm_elementwise(_STORE_RUN, _STORE_RUN_CONSTRAINTS, args, tl.int32, False, 1)


@triton.jit
def store_rows(pointers, s, kept):
    """Eight float32 a thread side by side in global memory."""
    if EMULATE:
        for n in tl.static_range(8):
            tl.store(pointers + n, s[n], mask=kept)
    else:
        args = [pointers.to(tl.int64), s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], kept.to(tl.int32)]
        tl.inline_asm_elementwise(_STORE_ROWS, "=r,l,f,f,f,f,f,f,f,f,r", args, tl.int32, False, 1)


@triton.jit
def load_run(pointers):
    """Sixteen float32 a thread from global memory, each M elements after the one before."""
    if EMULATE:
        run = ()
        for n in tl.static_range(16):
            run += (tl.load(pointers + n * M),)
        return run
    return tl.inline_asm_elementwise(_LOAD_RUN, _LOAD_RUN_CONSTRAINTS, [pointers.to(tl.int64)], _SIXTEEN, False, 1)


@triton.jit
def refuse(fault_ptr, code: tl.constexpr, refused):
    """Stores a fault's number where `refused` is true in any thread."""
    nothing = refused.to(tl.int32) * 0
    store_per_thread(fault_ptr + nothing, nothing + code, refused)


@triton.jit
def _load_words(pointers, kept):
    args = [pointers.to(tl.int64), kept.to(tl.int32)]
    return tl.inline_asm_elementwise(_LOAD_WORDS, "=&r,=&r,=&r,=&r,l,r", args, _WORDS, False, 1)


@triton.jit
def load_columns(pointers, kept):
    """Eight numbers side by side, 16 bytes or 32 at a multiple of 16, as float32; +0 where not kept."""
    columns = ()
    if EMULATE:
        for n in tl.static_range(8):
            columns += (widen(tl.load(pointers + n, mask=kept, other=0.0)),)
    elif pointers.dtype.element_ty == tl.float32:
        for n in tl.static_range(2):
            words = _load_words(pointers + 4 * n, kept)
            columns += (from_bits(words[0]), from_bits(words[1]), from_bits(words[2]), from_bits(words[3]))
    else:
        words = _load_words(pointers, kept)
        for n in tl.static_range(4):
            if pointers.dtype.element_ty == tl.bfloat16:
                columns += (from_bits(words[n] << 16), from_bits(words[n] & -65536))
            else:
                low, high = words[n].to(tl.int16), (words[n] >> 16).to(tl.int16)
                low, high = low.to(tl.float16, bitcast=True), high.to(tl.float16, bitcast=True)
                columns += (low.to(tl.float32), high.to(tl.float32))
    return columns


@triton.jit
def pattern_of(x, dtype: tl.constexpr):
    """The bits of float32 x rounded to a 16-bit type, below 2^16."""
    return narrow(x, dtype).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF


@triton.jit
def _store_words(pointers, words, kept):
    args = [pointers.to(tl.int64), words[0], words[1], words[2], words[3], kept.to(tl.int32)]
    tl.inline_asm_elementwise(_STORE_WORDS, "=r,l,r,r,r,r,r", args, tl.int32, False, 1)


@triton.jit
def store_columns(pointers, x, kept):
    """Eight float32 a thread side by side in the pointers' own type, settled and rounded to nearest even."""
    DTYPE: tl.constexpr = pointers.dtype.element_ty
    if EMULATE:
        for n in tl.static_range(8):
            store_narrow(pointers + n, x[n], kept)
    else:
        y = ()
        for n in tl.static_range(8):
            y += (settle_to(x[n], DTYPE),)
        if tl.float32 == DTYPE:
            _store_words(pointers, (bits(y[0]), bits(y[1]), bits(y[2]), bits(y[3])), kept)
            _store_words(pointers + 4, (bits(y[4]), bits(y[5]), bits(y[6]), bits(y[7])), kept)
        else:
            words = ()
            for n in tl.static_range(4):
                words += (pattern_of(y[2 * n], DTYPE) | (pattern_of(y[2 * n + 1], DTYPE) << 16),)
            _store_words(pointers, words, kept)
