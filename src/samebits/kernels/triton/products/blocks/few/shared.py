"""What the programs of one.py keep in shared memory on NVIDIA: the activations, and sums that change hands."""

from __future__ import annotations

from functools import cache

import triton
import triton.language as tl

from samebits.kernels.triton.lib.devices import PTX_HERE
from samebits.kernels.triton.products.blocks.terms import FOUR_WORDS

MOST_BYTES = 32768  # of activations: the rest of what a program may have without asking is for the sums
READ_ASM = tl.constexpr("ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];")


def _copies(source: str, at: int, num_bytes: int, threads: int, size: int) -> list[str]:
    """num_bytes from the global address `source` to base + at, `size` at a time and thread."""
    lines = [f"mul.lo.s32 at, $3, {size};"]
    for start in range(0, num_bytes, threads * size):
        lines += [
            f"setp.lt.s32 inside, at, {num_bytes - start};",
            f"cvt.s64.s32 from, at;\nadd.s64 from, from, {source};\nadd.s32 to, base, at;",
            f"@inside cp.async.ca.shared.global [to+{at + start}], [from+{start}], {size};",
        ]
    return lines


@cache
def activations_asm(num_blocks: int, threads: int) -> str:
    """Copies codes, then scales, of so many blocks; gives every thread the address. Empty where that cannot be."""
    if not PTX_HERE or 36 * num_blocks > MOST_BYTES:
        return ""
    lines = [
        "{",
        f".shared .align 16 .b8 blocks[{36 * num_blocks}];",
        ".reg .pred inside;",
        ".reg .b32 base, at, to;",
        ".reg .b64 from;",
        "mov.b32 base, blocks;",
        *_copies("$1", 0, 32 * num_blocks, threads, 16),
        *_copies("$2", 32 * num_blocks, 4 * num_blocks, threads, 4 if num_blocks % 4 else 16),
        "cp.async.commit_group;",
        "cp.async.wait_all;",
        "bar.sync 0;",
        "mov.b32 $0, base;",
        "}",
    ]
    return "\n".join(lines)


@cache
def exchange_asm(chunks: int) -> str:
    """Stores a thread's sum and adds those of all chunks of its row to the total; $3, $4 are offsets of sum and row."""
    if not PTX_HERE:
        return ""
    lines = [
        "{",
        f".shared .align 16 .b8 sums[{chunks * 128}];",
        ".reg .b32 base, own, row;",
        ".reg .f32 total, term;",
        "mov.b32 base, sums;",
        "add.s32 own, base, $3;",
        "add.s32 row, base, $4;",
        "st.shared.f32 [own], $2;",
        "mov.f32 total, $1;",
        "bar.sync 0;",
    ]
    for chunk in range(chunks):
        lines += [f"ld.shared.f32 term, [row+{chunk * 64}];", "add.rn.f32 total, total, term;"]
    return "\n".join([*lines, "mov.f32 $0, total;", "}"])


@triton.jit
def copy_activations(a_ptr, sa_ptr, THREADS: tl.constexpr, ASM: tl.constexpr):
    """Where the activations are in shared memory, int32 [THREADS]; of activations_asm."""
    thread = tl.arange(0, THREADS)
    codes = a_ptr.to(tl.int64) + thread * 0
    scales = sa_ptr.to(tl.int64) + thread * 0
    return tl.inline_asm_elementwise(ASM, "=r,l,l,r", [codes, scales, thread], tl.int32, False, 1)


@triton.jit
def read_words(at):
    """The four words at each of the addresses in shared memory."""
    return tl.inline_asm_elementwise(READ_ASM, "=r,=r,=r,=r,r", [at], FOUR_WORDS, False, 1)
