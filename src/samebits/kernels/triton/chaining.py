"""Launches that overlap: on NVIDIA from sm_90 on, a kernel may start while the one before it still runs.

A kernel launched with **chained(device) takes CHAINED: tl.constexpr. It calls `let_next_start` first of all and
`wait_for_previous` before it reads anything but constants and before it writes anything but faults. Constants of a step
are its weights and its integers: page tables, lengths, positions, ids. Where another kernel makes integers, a backend
must let that one end first (GpuExecutable does). What lies between the two runs beside the previous kernel's end: loads
of constants, address arithmetic, and `prefetch` of what is read later, which may be what the previous kernel still
writes. Elsewhere all three are nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def let_next_start(CHAINED: tl.constexpr):
    if CHAINED:
        gdc_launch_dependents()


@triton.jit
def wait_for_previous(CHAINED: tl.constexpr):
    if CHAINED:
        gdc_wait()


@triton.jit
def prefetch(pointers, CHAINED: tl.constexpr):
    """Asks for the 128-byte lines at the pointers to be brought into the L2 cache; a hint, it reads nothing."""
    if CHAINED:
        text: tl.constexpr = "prefetch.global.L2 [$1]; mov.b32 $0, 0;"
        tl.inline_asm_elementwise(text, "=r,l", [pointers.to(tl.int64)], tl.int32, False, 1)


@cache
def chained(device: torch.device) -> dict[str, Any]:
    """Launch options: CHAINED, and what the launcher needs for it."""
    if device.type != "cuda" or torch.version.hip or torch.cuda.get_device_capability(device) < (9, 0):
        return {"CHAINED": False}
    return {"CHAINED": True, "launch_pdl": True}
