"""Backends with one defect each: what `samebits verify` must catch by name.

Each is the reference backend with one kernel exchanged, or with a hand on the memory after a run. None of them
sums in an order of its own, so that a change of the canonical order does not touch them.
"""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from typing import Any, ClassVar

import numpy as np

from samebits.backends.interface import Caps
from samebits.backends.reference import ReferenceBackend, ReferenceExecutable, reference_kernels
from samebits.core.format import HostTensor, Packed, copy_tensor
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.kernels.record import Kernel, KernelTable
from samebits.ops import OPS, bind, evaluate

F = np.float32
Results = tuple[HostTensor, ...]


def defined(op_name: str, arguments: dict[str, Any]) -> Results:
    """What the op's definition gives."""
    return evaluate(bind(OPS[op_name], **arguments))


def stored(x: HostTensor) -> np.ndarray:
    return x.data if isinstance(x, Packed) else x


def next_float(x: np.ndarray) -> np.ndarray:
    """x with the last bit of every element moved."""
    return np.nextafter(x, x.dtype.type(np.inf))


class Planted(ReferenceBackend):
    """The reference with another kernel, `kernel(arguments)`, for the ops in `ops`, which claims the tier `tier`."""

    name = "planted"
    ops: ClassVar[tuple[str, ...]] = ()
    tier: ClassVar[Tier] = Tier.PORTABLE

    def __init__(self) -> None:
        self._table = KernelTable("numpy")
        for op in OPS:
            if op.name in self.ops:
                run = partial(self._run, op.name)
                run.__name__ = f"defective_{op.name}"  # type: ignore[attr-defined]
                self._table.add(Kernel(op, "numpy", self.tier, run))
            else:
                self._table.add(reference_kernels()[op.name][0])

    def _run(self, op_name: str, **arguments: Any) -> Results:
        return self.kernel(op_name, arguments)

    def kernels(self) -> tuple[KernelTable, ...]:
        return (self._table,)

    def compile(self, graph: Graph, tier: Tier) -> ReferenceExecutable:
        return TouchingExecutable(self, graph, tier)

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        return defined(op_name, arguments)

    def touch(self, op_name: str, inputs: dict[str, HostTensor], result: HostTensor, before: HostTensor | None) -> None:
        """May write to the memory of a run that has just ended; `before` is what the result's memory held."""


class TouchingExecutable(ReferenceExecutable):
    """Lets the backend reach the bound memory after a run."""

    def run(self) -> None:
        node = self._graph.nodes[0]
        bound = self._bound.get(node.outputs[0].name)
        before = None if bound is None else copy_tensor(bound)
        super().run()
        inputs = {name: self._values[value.name] for name, value in node.inputs.items()}
        if isinstance(self._backend, Planted) and node.op.name in self._backend.ops:
            self._backend.touch(node.op.name, inputs, self._values[node.outputs[0].name], before)


class WrongEps(Planted):
    ops = ("rms_norm",)

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        return defined(op_name, {**arguments, "eps": 0.1})


class EpsIgnored(Planted):
    """The model's eps is not passed on: too small an error for any tolerance."""

    ops = ("rms_norm",)

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        return defined(op_name, {**arguments, "eps": 1e-5})


class StrayWriteBefore(Planted):
    ops = ("mul",)

    def touch(self, op_name: str, inputs: dict[str, HostTensor], result: HostTensor, before: HostTensor | None) -> None:
        stored(result).base[2, -1] = 0  # the row before the first


class StrayWriteAfter(Planted):
    """Rounds the rows up to 16 and stores them all."""

    ops = ("silu_and_mul",)

    def touch(self, op_name: str, inputs: dict[str, HostTensor], result: HostTensor, before: HostTensor | None) -> None:
        stored(result).base[3 + len(result), 0] = 0


class StrayWriteAt33Rows(Planted):
    """Only a second block of 32 rows reaches beyond the end."""

    ops = ("mul",)

    def touch(self, op_name: str, inputs: dict[str, HostTensor], result: HostTensor, before: HostTensor | None) -> None:
        if len(result) == 33:
            stored(result).base[-3] = 0


class StrayWriteIntoInput(Planted):
    """Writes behind a packed weight."""

    ops = ("gemm",)

    def touch(self, op_name: str, inputs: dict[str, HostTensor], result: HostTensor, before: HostTensor | None) -> None:
        stored(inputs["weight"]).base[-1] = 0


class Unwritten(Planted):
    """Forgets the last column of an odd width."""

    ops = ("rms_norm",)

    def touch(self, op_name: str, inputs: dict[str, HostTensor], result: HostTensor, before: HostTensor | None) -> None:
        if result.shape[-1] % 2:
            stored(result)[..., -1] = stored(before)[..., -1]


class InputChanged(Planted):
    """Scales its input in place to save a buffer."""

    ops = ("softmax",)

    def touch(self, op_name: str, inputs: dict[str, HostTensor], result: HostTensor, before: HostTensor | None) -> None:
        stored(inputs["x"])[...] *= F(0.5)


def reversed_sum(arguments: dict[str, Any]) -> Results:
    """gemm in float32 with its sum over K taken from the other end."""
    turned = {name: np.ascontiguousarray(arguments[name][:, ::-1]) for name in ("x", "weight")}
    return defined("gemm", {**arguments, **turned})


class BatchDependent(Planted):
    ops = ("gemm",)

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        many = len(arguments["x"]) > 4
        return reversed_sum(arguments) if many else defined(op_name, arguments)


class ThreadDependent(Planted):
    ops = ("gemm",)
    threads = 1

    def set_threads(self, count: int) -> None:
        self.threads = count

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        return reversed_sum(arguments) if self.threads > 2 else defined(op_name, arguments)


class ThreadsRaise(ThreadDependent):
    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        if self.threads > 1:
            raise RuntimeError("no pool")
        return defined(op_name, arguments)


class NeighbourDependent(Planted):
    """One scale for the whole batch."""

    ops = ("rms_norm",)

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        (y,) = defined(op_name, arguments)
        return (next_float(y) if arguments["x"].sum() > arguments["x"][:1].sum() else y,)


class PositionDependent(Planted):
    """Odd rows go to another unit."""

    ops = ("rms_norm",)

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        (y,) = defined(op_name, arguments)
        y[1::2] = next_float(y[1::2])
        return (y,)


class Nondeterministic(Planted):
    """Every third run differs, so two runs in a row may agree."""

    ops = ("add",)
    runs = 0

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        self.runs += 1
        (z,) = defined(op_name, arguments)
        return (z if self.runs % 3 else next_float(z),)


class ContractedMultiplyAdd(Planted):
    """(x * scale) * weight + bias rounded once instead of twice."""

    ops = ("rms_norm",)

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        weight, bias = arguments.get("weight"), arguments.get("bias")
        if bias is None:
            return defined(op_name, arguments)
        (scaled,) = defined(op_name, {k: v for k, v in arguments.items() if k not in ("weight", "bias")})
        return ((scaled.astype(np.float64) * weight.astype(np.float64) + bias).astype(F),)


class FusedUnrounded(Planted):
    """Keeps the new residual in float64 on its way into the norm."""

    ops = ("fused_add_rms_norm",)

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        total = arguments["residual"].astype(np.float64) + arguments["x"]
        y = total / np.sqrt((total * total).mean(axis=-1, keepdims=True) + arguments["eps"]) * arguments["weight"]
        return y.astype(F), defined(op_name, arguments)[1]


class TieBreak(Planted):
    """The highest index first among equals."""

    ops = ("top_k",)

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        values, indices = defined(op_name, {**arguments, "x": np.ascontiguousarray(arguments["x"][..., ::-1])})
        return values, (arguments["x"].shape[-1] - 1 - indices).astype(np.int32)


class ScaleOffInQ4K(Planted):
    ops = ("gemm",)

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        (y,) = defined(op_name, arguments)
        weight = arguments["weight"]
        return (y * F(0.5) if isinstance(weight, Packed) and weight.format.name == "q4_k" else y,)


class Crash(Planted):
    ops = ("mul",)

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        os.kill(os.getpid(), signal.SIGSEGV)
        return ()


class Hang(Planted):
    ops = ("mul",)

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        while True:
            time.sleep(1)


class Raises(Planted):
    """An error text as toolchains write them: several lines, brackets."""

    ops = ("mul",)

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        raise RuntimeError("launch failed:\n  invalid argument [/usr/lib]")


class Refuted(Planted):
    """Claims portable kernels on a device whose probe says otherwise."""

    def probe(self) -> Caps:
        return Caps("planted", refuted={Tier.PORTABLE: "sums are contracted"})
