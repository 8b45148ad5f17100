"""Backends that compute what the reference does, but for one op in one situation."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
from tiny_models import HEAD

from samebits.backends.reference import ReferenceBackend, reference_kernels
from samebits.core.tiers import Tier
from samebits.kernels.record import Kernel, KernelTable, OpCall
from samebits.ops import OPS, bind, evaluate


class Planted(ReferenceBackend):
    """`wrong(arguments)` runs in place of the definition of `op`; `tier` is what it claims."""

    op: ClassVar[str]
    tier = Tier.PORTABLE

    def __init__(self) -> None:
        self._table = KernelTable("planted")
        for op in OPS:
            if op.name == self.op:
                run = partial(self._run)
                run.__name__ = f"defective_{op.name}"  # type: ignore[attr-defined]
                self._table.add(Kernel(op, "planted", self.tier, run, self.when))
            else:
                self._table.add(reference_kernels()[op.name][0])

    def _run(self, **arguments: Any) -> tuple[Any, ...]:
        results = evaluate(bind(OPS[self.op], **arguments))
        return self.wrong(results, arguments)

    def when(self, call: OpCall) -> str | None:
        return None

    def wrong(self, results: tuple[Any, ...], arguments: dict[str, Any]) -> tuple[Any, ...]:
        return results

    def kernels(self) -> tuple[KernelTable, ...]:
        return (self._table,)


class HeadNormEps(Planted):
    """rms_norm with another eps, only on rows as wide as a head."""

    op = "rms_norm"

    def wrong(self, results: tuple[Any, ...], arguments: dict[str, Any]) -> tuple[Any, ...]:
        if arguments["x"].shape[-1] != HEAD:
            return results
        return evaluate(bind(OPS[self.op], **{**arguments, "eps": 1e-3}))


class FullAttention(Planted):
    """The last bit of attention, only where there is no sliding window."""

    op = "paged_attention"

    def wrong(self, results: tuple[Any, ...], arguments: dict[str, Any]) -> tuple[Any, ...]:
        if arguments["window_left"] >= 0:
            return results
        return (np.nextafter(results[0], np.float32(np.inf)), *results[1:])


class Infinite(Planted):
    """An overflow in the middle of layer 0, which a later quantization or product will not take."""

    op = "silu_and_mul"

    def wrong(self, results: tuple[Any, ...], arguments: dict[str, Any]) -> tuple[Any, ...]:
        results[0][0, 0] = np.inf
        return results


class Raises(Planted):
    """A launch that fails with a text of several lines."""

    op = "add"

    def wrong(self, results: tuple[Any, ...], arguments: dict[str, Any]) -> tuple[Any, ...]:
        raise RuntimeError("launch failed:\n  invalid argument")


class FastGemm(Planted):
    """Its products keep no order."""

    op = "gemm"
    tier = Tier.FAST


class NoRope(Planted):
    """Refuses every rotation, for a reason."""

    op = "rope"

    def when(self, call: OpCall) -> str | None:
        return "rope: no table in constant memory"
