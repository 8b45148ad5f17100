"""What the Triton kernels' launchers launch over the ops' cases, noted instead of run: for tools/compile_kernels.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

from triton.backends.compiler import GPUTarget

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
TOKEN_COUNTS = (1, 33, 300)  # a launcher may choose by the number of tokens


@dataclass(frozen=True)
class Launch:
    """One specialisation of one kernel function, as a launch of an op on a target asked for it."""

    op: str
    target: str
    build: Any  # a TritonBuild: its module looks at torch to tell whose GPU it is

    @property
    def function(self) -> str:
        """Its place in kernels/triton and its name."""
        return str(self.build.name)


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
    from samebits.kernels.triton.lib.builds import TritonBuild, noting_launches
    from samebits.kernels.triton.lib.devices import DEFAULT_MULTIPROCESSORS, MEMORYLESS, DeviceFacts
    from samebits.kernels.triton.table import kernels_for

    failures: dict[str, str] = {}
    facts = DeviceFacts(TARGETS[target], DEFAULT_MULTIPROCESSORS)
    with noting_launches(facts) as builds:
        for case in cases_of(op, full):
            bound = bind(op, **make_inputs(op, case))
            for kernel in chosen_kernels(kernels_for(facts), op, bound):
                given = {t.name: None for t in op.inputs}
                given |= {name: to_device(x, MEMORYLESS) for name, x in bound.tensors.items()}
                try:
                    kernel.run(**given, **bound.attrs)
                    if kernel.prepack:
                        packed = {name: pack(given[name]) for name, pack in kernel.prepack.items()}
                        kernel.run(**given | packed, **bound.attrs)
                except Exception as error:  # one launcher's failure must not hide the others
                    failures[kernel.name] = f"{kernel.name} for {op.name} {case.id}: {type(error).__name__}: {error}"
    return [Launch(op.name, target, cast(TritonBuild, build)) for build in builds.values()], list(failures.values())
