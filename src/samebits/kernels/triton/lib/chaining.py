"""Launches that overlap: on NVIDIA from sm_90 on, a kernel may start while the one before it still runs.

A kernel launched with **chained(device) takes CHAINED: tl.constexpr and calls `wait_for_previous` before it reads
anything but constants and before it writes anything but faults. What lies before the call runs beside the previous
kernel: loads of constants, address arithmetic. Constants of a step are its weights and its integers: page tables,
lengths, positions, ids; where another kernel makes integers, a backend must let that one end first (GpuExecutable
does), unless the launcher is marked with `reads_integers_late`. Elsewhere the call does nothing.

The next kernel may start once all programs have called it. Were it let in earlier, its programs would go where room is
left by chance, several to a multiprocessor, while others stay empty: a step took a tenth longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from samebits.kernels.triton.lib.devices import facts_of

Launcher = TypeVar("Launcher", bound=Callable[..., Any])
_LATE_READERS: set[Callable[..., Any]] = set()


def reads_integers_late(launcher: Launcher) -> Launcher:
    """Marks a launcher none of whose kernels reads an integer before `wait_for_previous`."""
    _LATE_READERS.add(launcher)
    return launcher


def is_late_reader(launcher: Callable[..., Any]) -> bool:
    return launcher in _LATE_READERS


@triton.jit
def wait_for_previous(CHAINED: tl.constexpr):
    """Returns when all that the previous kernel wrote can be read, and lets the next one start."""
    if CHAINED:
        gdc_wait()
        gdc_launch_dependents()


def chained(device: torch.device) -> dict[str, Any]:
    """Launch options: CHAINED, and what the launcher needs for it."""
    facts = facts_of(device)
    return {"CHAINED": True, "launch_pdl": True} if facts is not None and facts.overlaps else {"CHAINED": False}
