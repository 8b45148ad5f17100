"""Sums of a row in order on NVIDIA, through shared memory: a thread for each slot of each cut; docs/numerics.md, 3."""

from __future__ import annotations

from functools import cache

import triton
import triton.language as tl

from samebits.kernels.triton.lib.devices import PTX_HERE
from samebits.kernels.triton.lib.rows import sum_of_slots

MOST_CUTS = 64  # with 16 threads each, what a program may have


def _chain(count: int, at: str, start: int = 0) -> list[str]:
    """total = the floats `start` bytes behind an address in shared memory, added in order."""
    lines = ["mov.f32 total, 0f00000000;"]
    for i in range(0, count, 4):
        lines.append(f"ld.shared.v4.f32 {{a0, a1, a2, a3}}, [{at}+{4 * i + start}];")
        lines += [f"add.rn.f32 total, total, a{j};" for j in range(4)]
    return lines


@cache
def in_shared_memory(cuts: int) -> str:
    """The assembly of row_sum for so many cuts, a power of two; empty where it cannot be used."""
    if not PTX_HERE or cuts > MOST_CUTS:
        return ""
    whole = max(4, cuts)  # the cuts' sums are read by fours: every cut writes zeros behind its own
    lines = [
        "{",
        f".shared .align 16 .b8 sums[{68 * cuts + 4 * whole}];",
        ".reg .pred first;",
        ".reg .b32 base, at, within, cut;",
        ".reg .f32 total, a0, a1, a2, a3;",
        "mov.b32 base, sums;",
        "shl.b32 at, $2, 2;",
        "and.b32 within, at, 63;",
        "add.s32 at, base, at;",
        "st.shared.f32 [at], $1;",
        f"shr.u32 cut, $2, 2;\nand.b32 cut, cut, -4;\nadd.s32 cut, cut, base;\nadd.s32 cut, cut, {64 * cuts};",
        "setp.eq.s32 first, within, 0;",
        *([f"mov.f32 total, 0f00000000;\n@first st.shared.f32 [cut+{4 * i}], total;" for i in range(cuts, whole)]),
        "bar.sync 0;",
        "sub.s32 at, at, within;",
        *_chain(16, "at"),
        "@first st.shared.f32 [cut], total;",
        "bar.sync 0;",
        *_chain(whole, "base", 64 * cuts),
        "mov.f32 $0, total;",
        "}",
    ]
    return "\n".join(lines)


@triton.jit
def row_sum(slots, ASM: tl.constexpr):
    """float32 [P = (CUTS, 16)], the slots of one row, to [P], all of them the sum: slots in order, then cuts in order.

    ASM: of in_shared_memory, and then the program has one thread for each slot.
    """
    if ASM != "":
        index = tl.arange(0, slots.shape[0])
        return tl.inline_asm_elementwise(ASM, "=f,f,r", [slots, index], tl.float32, False, 1)
    else:
        total = sum_of_slots(tl.reshape(slots, [slots.shape[0] // 16, 16]), 1)
        return tl.broadcast_to(total, [slots.shape[0]])
