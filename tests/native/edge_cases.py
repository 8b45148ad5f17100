"""Calls of an op with each of its sizes at 0 and at 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import Packed
from samebits.ops import Bound, bind, make_inputs
from samebits.ops.record import Case, Op

MANY = 40  # tokens, for kernels that take many at a time
LARGEST_BYTES = 100_000  # of an input: small cases only
WEIGHTS = {"f32", "f16", "q8_0", "q4_k", "nvfp4"}  # a format of each kind of term and of block length
SCENE = ("heads", "head", "v_dim", "page_size", "group")  # sizes of caches, and of queries
EMPTY = {
    "nothing in any sequence": lambda sizes: (0,) * len(sizes),
    "one token in each": lambda sizes: (1,) * len(sizes),
    "nothing in the first": lambda sizes: (0, *sizes[1:]),
    "no sequences": lambda sizes: (),
}


def small(inputs: dict[str, Any]) -> bool:
    arrays = [x.data if isinstance(x, Packed) else x for x in inputs.values() if isinstance(x, (np.ndarray, Packed))]
    return all(x.nbytes <= LARGEST_BYTES for x in arrays)


def cases(op: Op) -> Iterator[Case]:
    """The op's small cases, one of each set of formats, attrs and given inputs; of products, one with many tokens."""
    seen = set()
    for case in op.cases:
        key = (tuple(case.formats.items()), tuple(case.attrs.items()), case.given)
        weights = {case.formats.get(name, "f32") for name in op.weights}
        if not case.full and key not in seen and weights <= WEIGHTS:
            seen.add(key)
            yield case
            if op.weights and "T" in case.dims and not case.extra:
                yield replace(case, dims={**case.dims, "T": MANY})


def edges(case: Case) -> Iterator[Case]:
    """The case with each of its sizes at 0 and at 1, those that its scene states among them, and without sequences."""
    for edge in (0, 1):
        for name, size in case.dims.items():
            if type(size) is int:
                yield replace(case, id=f"{case.id}, {name} = {edge}", dims={**case.dims, name: edge})
            elif isinstance(size, tuple):  # leading axes
                for other in ((edge,), (2, edge), (edge, 2)):
                    yield replace(case, id=f"{case.id}, {name} = {other}", dims={**case.dims, name: other})
        for name in (n for n in SCENE if n in case.extra):
            yield replace(case, id=f"{case.id}, {name} = {edge}", extra={**case.extra, name: edge})
    for text, change in EMPTY.items():
        changed = {name: change(size) for name, size in case.extra.items() if isinstance(size, tuple)}
        if changed:
            yield replace(case, id=f"{case.id}, {text}", extra={**case.extra, **changed})


def calls(op: Op, edge_name: str = "") -> Iterator[tuple[str, Bound]]:
    """Yield checked calls of the edges whose name contains `edge_name`: those with inputs that the op allows."""
    for case in cases(op):
        for edge in (edge for edge in edges(case) if edge_name in edge.id):
            try:
                inputs = make_inputs(op, edge)
                if small(inputs):
                    yield edge.id, bind(op, **inputs)
            except (BadInput, ValueError, IndexError, ZeroDivisionError, TypeError, KeyError):
                continue  # no inputs of that size exist
