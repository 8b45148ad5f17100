"""One op on one backend, in memory that is watched.

Every tensor lies inside a larger buffer whose edges hold a pattern; outputs start as that pattern, so a stray
write, a changed input and an element that was never written all show.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from samebits.backends.interface import Backend, Buffer, View
from samebits.backends.one_op import OneOp, one_node
from samebits.core.format import FORMATS, BlockFormat, HostTensor, Packed, spec_bytes
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.ops import Bound, Op, bind
from samebits.verify.model import Finding
from samebits.verify.refusals import held_to_claims

GUARD_ROWS = 3  # odd, so that the tensor inside often starts at an address that is not aligned for vector loads
PATTERNS = (0xFF, 0xA5)  # as floats: NaN, and a small negative number


@dataclass
class Outcome:
    """Results on the host, and what the memory around them showed."""

    results: tuple[HostTensor, ...]
    findings: list[Finding] = field(default_factory=list)


def raw_bytes(x: HostTensor) -> np.ndarray:
    """The tensor's bytes, uint8, shaped [..., row bytes]."""
    data = np.ascontiguousarray(x.data if isinstance(x, Packed) else x)
    return data.reshape(data.shape or (1,)).view(np.uint8)


def same_bytes(a: HostTensor, b: HostTensor) -> bool:
    return np.array_equal(raw_bytes(a), raw_bytes(b))


def filled(spec: TensorSpec, pattern: int) -> HostTensor:
    """A host tensor of the spec in which every byte is the pattern (a bool array holds true)."""
    shape, fmt = spec.upper_shape, FORMATS[spec.format]
    if isinstance(fmt, BlockFormat):
        return Packed(fmt, np.full((*shape[:-1], fmt.row_bytes(shape[-1])), pattern, np.uint8))
    if fmt.dtype is None:
        raise TypeError(f"{fmt.name} is neither plain nor a block format")
    if fmt.dtype == np.bool_:
        return np.ones(shape, bool)
    return np.full(spec_bytes(spec), pattern, np.uint8).view(fmt.dtype).reshape(shape)


class Watched:
    """A tensor in the middle of a guarded buffer of a backend."""

    def __init__(self, backend: Backend, name: str, spec: TensorSpec, content: HostTensor | None, pattern: int) -> None:
        self.name, self._backend = name, backend
        self._rows = spec.upper_shape[0]
        whole = TensorSpec((self._rows + 2 * GUARD_ROWS, *spec.shape[1:]), spec.format)
        self.base: Buffer = backend.alloc(whole)
        self._before = filled(whole, pattern)
        if content is not None:
            target = self._before.data if isinstance(self._before, Packed) else self._before
            target[GUARD_ROWS : GUARD_ROWS + self._rows] = content.data if isinstance(content, Packed) else content
            if isinstance(content, Packed):
                self._before = Packed(content.format, target, content.scale)
        backend.copy_in(self.base, self._before)
        self.view: View = backend.view(self.base, ("slice", 0, GUARD_ROWS, GUARD_ROWS + self._rows))

    def inspect(self, may_change: bool) -> tuple[HostTensor, list[Finding]]:
        """The tensor as it is now, and what its surroundings show."""
        after = self._backend.copy_out(self.base)
        findings = []
        edges = (("before", slice(0, GUARD_ROWS)), ("after", slice(GUARD_ROWS + self._rows, None)))
        for side, rows in edges:
            if not same_bytes(self._before[rows], after[rows]):
                findings.append(Finding("guard", f"{self.name}: bytes {side} the buffer were overwritten"))
        body = slice(GUARD_ROWS, GUARD_ROWS + self._rows)
        if not may_change and not same_bytes(self._before[body], after[body]):
            findings.append(Finding("input", f"{self.name}: the op changed an input it only reads"))
        return after[body], findings


def execute(backend: Backend, op: Op, inputs: dict[str, Any], tier: Tier, pattern: int = PATTERNS[0]) -> Outcome:
    """Run one call. Raise Unsupported if a kernel is missing and BrokenClaim if the backend refuses a call for which it
    has one; other errors of the backend pass through."""
    bound = bind(op, **inputs)
    with held_to_claims(backend, lambda: one_node(op, bound.specs, bound.attrs), tier):
        return _executed(backend, bound, tier, pattern)


def _executed(backend: Backend, bound: Bound, tier: Tier, pattern: int) -> Outcome:
    op = bound.op
    call = OneOp(backend, op, bound.specs, bound.attrs, tier)
    # a tensor without axes has no rows to guard
    guarded = {name: x for name, x in bound.tensors.items() if x.ndim}
    watched = {name: Watched(backend, name, bound.specs[name], x, pattern) for name, x in guarded.items()}
    call.bind({name: memory.view for name, memory in watched.items()})
    call.put({name: x for name, x in bound.tensors.items() if name not in watched})
    names, own = [r.name for r in op.active_results(bound.tensors, bound.attrs)], call.own_results()
    fresh = {i: Watched(backend, names[i], value.spec, None, pattern) for i, value in own.items()}
    call.bind({own[i].name: memory.view for i, memory in fresh.items()})
    call.run()
    return _collect(bound, watched, fresh, call)


def _collect(bound: Bound, watched: dict[str, Watched], fresh: dict[int, Watched], call: OneOp) -> Outcome:
    findings: list[Finding] = []
    after: dict[str, HostTensor] = {}
    for name, memory in watched.items():
        after[name], seen = memory.inspect(may_change=name in bound.op.writes)
        findings += seen
    collected: list[HostTensor] = []
    for i, result in enumerate(bound.op.active_results(bound.tensors, bound.attrs)):
        if result.alias_of is not None:
            collected.append(after[result.alias_of])
        elif i in fresh:
            value, seen = fresh[i].inspect(may_change=True)
            collected.append(value)
            findings += seen
        else:
            collected.append(call.result(i))
    return Outcome(tuple(collected), findings)
