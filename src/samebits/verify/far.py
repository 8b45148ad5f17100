"""Caches of more elements than 31 bits count: in a full run, ops read and write the pages at their end.

Only those pages hold anything, so that the host has memory for no others: the rest of the array is never touched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from samebits.backends.interface import Backend
from samebits.backends.one_op import OneOp
from samebits.core.format import HostTensor, Packed, copy_tensor
from samebits.core.tiers import Tier
from samebits.ops import Op, bind
from samebits.ops.evaluate import spec_of
from samebits.verify.bounds.judge import Judge
from samebits.verify.checks import Examination
from samebits.verify.input_sets import PAGE_IDS
from samebits.verify.model import Finding
from samebits.verify.refusals import crash

FAR_ELEMENTS = 1 << 31  # of a cache before the pages that a case uses


def far_inputs(op: Op, inputs: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the call with FAR_ELEMENTS elements before the first page of its caches, and the number of those pages.

    `inputs` hold plain caches and a page table.
    """
    caches = {name: inputs[name] for name in op.caches if inputs.get(name) is not None}
    num_before = max(-(-FAR_ELEMENTS // math.prod(near.shape[1:])) for near in caches.values())
    far: dict[str, Any] = {}
    for name, near in caches.items():
        far[name] = np.zeros((num_before + len(near), *near.shape[1:]), near.dtype)
        far[name][num_before:] = near
    ids = {name: inputs[name] + np.int32(num_before) for name in PAGE_IDS if name in inputs}
    return {**inputs, **ids, **far}, num_before


def run_far(backend: Backend, op: Op, inputs: dict[str, Any], tier: Tier) -> tuple[HostTensor, ...]:
    """Run a call on a cache with FAR_ELEMENTS elements before its first page. Return its results, of the cache only
    the pages of `inputs`."""
    far, num_before = far_inputs(op, inputs)
    bound = bind(op, **inputs)  # checks the call without a look at all of the large caches
    tensors = {name: far[name] for name in bound.tensors}
    call = OneOp(backend, op, {name: spec_of(x) for name, x in tensors.items()}, bound.attrs, tier)
    buffers = {name: backend.adopt(x) for name, x in tensors.items()}
    call.bind(buffers)
    call.run()
    results: list[HostTensor] = []
    for i, result in enumerate(op.active_results(bound.tensors, bound.attrs)):
        if result.alias_of is None:
            results.append(call.result(i))
        else:
            rows = ("slice", 0, num_before, len(tensors[result.alias_of]))
            results.append(backend.copy_out(backend.view(buffers[result.alias_of], rows)))
    return tuple(results)


class FarExamination(Examination):
    """Compares a call on the end of a large cache with the definition on a cache of those pages alone."""

    def findings(self) -> Iterator[Finding]:
        want = self._reference()
        try:
            copies = {k: copy_tensor(v) if isinstance(v, (np.ndarray, Packed)) else v for k, v in self._inputs.items()}
            got = run_far(self._backend, self._op, copies, self._tier)
        except Exception as error:  # any exception of a backend under test is its failure, with its text
            yield crash(error)
            return
        self._compared.made("nan", "values")
        broken = list(self._values(got, Judge(self._bound, want)))
        yield from broken
        if self._tier >= Tier.PORTABLE and not broken:
            self._compared.made("bits")
            yield from self._same("bits", "reference", got, want)
