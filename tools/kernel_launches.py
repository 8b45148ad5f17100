"""What the Triton kernels' launchers launch, noted instead of run: for tools/compile_kernels.py, where no GPU is.

Launchers run over the ops' cases on tensors of the host, under a driver that only names a target. Every launch is
specialised as Triton specialises it and handed to a compiler that writes it down; so no signature is listed anywhere,
and what is noted is what would be launched.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton.compiler
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.compiler import ASTSource
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from samebits.backends.support import op_call
from samebits.core.tiers import Tier
from samebits.kernels.record import Kernel, KernelTable
from samebits.ops import Bound, Op, bind, make_inputs
from samebits.ops.record import Case

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
    "gfx1100": GPUTarget("hip", "gfx1100", 32),
}
ROOM = "samebits.kernels.triton."
TOKEN_COUNTS = (1, 33, 300)  # a launcher may choose by the number of tokens

_device_numbers = itertools.count()  # a fresh one each time: Triton keeps by device what it compiled


@dataclass(frozen=True)
class Launch:
    """One specialisation of one kernel function, as a launch on `target` asked for it."""

    op: str
    target: str
    source: ASTSource
    options: dict[str, Any]

    @property
    def function(self) -> str:
        """Its place in kernels/triton and its name."""
        return f"{self.source.fn.__module__.removeprefix(ROOM)}.{self.source.fn.__name__}"


class TargetOnly(DriverBase):
    """A driver without a device: it answers what a launch asks before it compiles."""

    def __init__(self, target: GPUTarget) -> None:
        super().__init__()
        self._target, self._device = target, next(_device_numbers)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return self._device

    def get_current_stream(self, _device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("nothing is launched")

    def get_benchmarker(self) -> Any:
        raise NotImplementedError("nothing is launched")


@contextmanager
def active_target(name: str) -> Iterator[None]:
    """Triton sees this target for as long."""
    before = driver._active
    driver.set_active(TargetOnly(TARGETS[name]))
    try:
        yield
    finally:
        driver._active = before  # `reset_active` would look for a device


@contextmanager
def recording(op: str, target_name: str) -> Iterator[list[Launch]]:
    """Launches are noted in the list, each specialisation once, and not run."""
    launches: list[Launch] = []
    run, compile_kernel = JITFunction.run, triton.compiler.compile

    def run_without_launch(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        return run(self, *args, grid=grid, warmup=True, **kwargs)

    def note(src: ASTSource, target: GPUTarget, options: dict[str, Any]) -> object:
        launches.append(Launch(op, target_name, src, options))
        return object()  # Triton keeps it, and asks for the same specialisation no more

    JITFunction.run, triton.compiler.compile = run_without_launch, note
    try:
        with active_target(target_name):
            yield launches
    finally:
        JITFunction.run, triton.compiler.compile = run, compile_kernel


def chained_on_target(_device: torch.device) -> dict[str, Any]:
    """What `chaining.chained` says on the active target."""
    target = driver.active.get_current_target()
    overlaps = target.backend == "cuda" and target.arch >= 90
    return {"CHAINED": True, "launch_pdl": True} if overlaps else {"CHAINED": False}


def cases_of(op: Op, full: bool) -> Iterator[Case]:
    """The op's cases, and those made of plain rows, or of tokens and their experts, at other numbers of tokens too."""
    for case in op.cases:
        if full or not case.full:
            yield case
            if case.dims.get("T") and set(case.extra) <= {"chosen"}:
                yield from (replace(case, dims=dims_at(case.dims, count)) for count in TOKEN_COUNTS)


def dims_at(dims: dict[str, Any], num_tokens: int) -> dict[str, Any]:
    """The sizes at another number of tokens; where there are P = T * R pairs, P and their rows X follow it."""
    of_pairs = ("P", "X") if dims.get("P") == dims["T"] * dims.get("R", 0) else ()
    return {**dims, **{name: dims[name] // dims["T"] * num_tokens for name in ("T", *of_pairs) if name in dims}}


def chosen_kernels(table: KernelTable, op: Op, bound: Bound) -> list[Kernel]:
    """The kernels that serve the call, one for each tier, without repetition."""
    chosen: dict[str, Kernel] = {}
    for tier in Tier:
        call = op_call(op, bound.specs, bound.attrs, tier)
        kernel = next((k for k in table[op.name] if k.refusal(call) is None), None)
        if kernel is not None:
            chosen[kernel.name] = kernel
    return list(chosen.values())


def launches_of(op: Op, target: str, full: bool = False) -> tuple[list[Launch], list[str]]:
    """(every launch that the op's kernels make on a target over its cases, a line for each launcher that failed).

    Kernel files are imported here, not above: they look at torch to tell whose GPU it is.
    """
    from samebits.backends.gpu.buffers import to_device
    from samebits.kernels.triton.lib import chaining

    chaining.chained = chained_on_target  # it asks a device, and there is none
    from samebits.kernels.triton.table import triton_kernels

    failures: dict[str, str] = {}
    with recording(op.name, target) as launches:
        for case in cases_of(op, full):
            bound = bind(op, **make_inputs(op, case))
            for kernel in chosen_kernels(triton_kernels(), op, bound):
                given = {t.name: None for t in op.inputs}
                given |= {name: to_device(x, torch.device("cpu")) for name, x in bound.tensors.items()}
                try:
                    kernel.run(**given, **bound.attrs)
                    if kernel.prepack:
                        packed = {name: pack(given[name]) for name, pack in kernel.prepack.items()}
                        kernel.run(**given | packed, **bound.attrs)
                except Exception as error:  # one launcher's failure must not hide the others
                    failures[kernel.name] = f"{kernel.name} for {op.name} {case.id}: {type(error).__name__}: {error}"
    return launches, list(failures.values())
