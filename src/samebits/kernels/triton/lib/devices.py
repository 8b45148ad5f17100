"""What kernels may know of the device they are launched on: whose it is, its assembly, how many multiprocessors.

A device of torch's type "meta" has no memory: it stands for a GPU that is described, here or elsewhere, while launches
are noted and not made (kernels/ahead.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache

import torch
from triton.backends.compiler import GPUTarget

from samebits.core.errors import BadInput
from samebits.kernels.triton.lib.registry import INTERPRETED

ON_AMD = torch.version.hip is not None
PTX_HERE = not INTERPRETED and not ON_AMD  # whether NVIDIA's inline assembly may be used

# In the interpreter, and where kernels are compiled for a GPU that is not here: so few that small cases meet the
# launches that large ones get on a GPU.
DEFAULT_MULTIPROCESSORS = 8
MEMORYLESS = torch.device("meta")


@dataclass(frozen=True)
class DeviceFacts:
    """A GPU, as far as launches depend on it."""

    target: GPUTarget
    multiprocessors: int  # compute units of AMD's

    @property
    def overlaps(self) -> bool:
        """Whether a kernel may start while the one before it ends: on NVIDIA's, from sm_90 on."""
        return self.target.backend == "cuda" and int(self.target.arch) >= 90


def invariance_doubt(facts: DeviceFacts | None) -> str | None:
    """Return why products in tiles of 16 rows and of 64 may differ in bits on a GPU; None if they are known not to.

    Kernels of the tier invariant choose a tile by the number of rows, and Triton an instruction by the tile. Up to
    sm_89 there is one instruction for all tiles; of sm_90 a run on an H200 compared both. No run did elsewhere.
    """
    if facts is None:  # the interpreter
        return None
    if facts.target.backend != "cuda":
        return f"{facts.target.arch}: AMD's matrix instructions for few and for many rows were never compared"
    if int(facts.target.arch) > 90:
        return f"sm_{facts.target.arch}: its matrix instructions for few and for many rows were never compared"
    return None


_described: ContextVar[DeviceFacts] = ContextVar("described")


@contextmanager
def describing(facts: DeviceFacts) -> Iterator[None]:
    """Inside, tensors without memory are taken for tensors on such a GPU."""
    token = _described.set(facts)
    try:
        yield
    finally:
        _described.reset(token)


def facts_of(device: torch.device) -> DeviceFacts | None:
    """The facts of a GPU, or of the one described; None for the host."""
    if device.type == "cpu":
        return None
    return _described.get() if device.type == "meta" else _facts_here(device)


@cache
def _facts_here(device: torch.device) -> DeviceFacts:
    found = torch.cuda.get_device_properties(device)
    if ON_AMD:
        target = GPUTarget("hip", found.gcnArchName.split(":")[0], found.warp_size)
    else:
        target = GPUTarget("cuda", 10 * found.major + found.minor, 32)
    return DeviceFacts(target, found.multi_processor_count)


def parsed_facts(text: str) -> DeviceFacts:
    """The facts of a GPU written as "sm_90/132": its architecture and how many multiprocessors it has."""
    arch, _, count = text.partition("/")
    if arch.startswith("sm_") and arch[3:].isdecimal() and count.isdecimal() and int(count):
        return DeviceFacts(GPUTarget("cuda", int(arch[3:]), 32), int(count))
    raise BadInput("devices", "target", text, "an architecture and a number of multiprocessors, such as sm_90/132")


def multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a GPU (compute units of AMD's)."""
    facts = facts_of(device)
    return DEFAULT_MULTIPROCESSORS if facts is None else facts.multiprocessors
