"""Writes verify's cases to a file that the program `bits` replays: inputs, attrs, and the bytes the reference gives.

So a new kernel is covered by the cases of its op, on every instruction set, without a line here.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

sys.path.insert(0, str(Path(__file__).parents[1]))

from case_sizes import weight_bytes
from edge_cases import calls

from samebits.backends.cpu.layouts import cache_layouts
from samebits.backends.one_op import one_node
from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed, copy_tensor
from samebits.kernels.cpp.table import LAYOUT_CODES, encoded
from samebits.kernels.cpp.weights import FORMAT_CODES
from samebits.ops import OPS, Bound, bind, evaluate, make_inputs
from samebits.ops.evaluate import spec_of
from samebits.ops.record import Case, Op
from samebits.verify.harness import raw_bytes

MANY_TOKENS = 23  # for AMX and aarch64's matrix instruction, and tiles of 8, 4, 2 and 1 besides
LARGEST_BYTES = 200_000  # of a case's tensors: an emulated CPU is slow
LARGEST_EDGE_BYTES = 20_000  # of a case with a size at 0


def write_text(file: BinaryIO, text: str) -> None:
    file.write(struct.pack("<i", len(text)) + text.encode())


def write_tensor(file: BinaryIO, tensor: HostTensor | None, layout: str = "row-major") -> None:
    """Format, layout that kernels like best, scale, shape, bytes; format -1 for an absent one."""
    if tensor is None:
        file.write(struct.pack("<i", -1))
        return
    spec, data = spec_of(tensor), raw_bytes(tensor).tobytes()
    scale = float(tensor.scale) if isinstance(tensor, Packed) else 1.0
    file.write(struct.pack("<iifi", FORMAT_CODES[spec.format], LAYOUT_CODES[layout], scale, len(spec.shape)))
    file.write(struct.pack(f"<{len(spec.shape)}q", *spec.shape) + struct.pack("<q", len(data)) + data)


def best_layouts(bound: Bound) -> dict[str, str]:
    """Input -> the layout the backend would keep it in."""
    kinds: dict[str, Any] = {name: "cache" for name in bound.op.caches if name in bound.specs}
    layouts = cache_layouts(one_node(bound.op, bound.specs, bound.attrs, kinds))
    return layouts | dict.fromkeys(bound.op.weights, "rows16")


def write_case(file: BinaryIO, name: str, bound: Bound) -> None:
    op, layouts = bound.op, best_layouts(bound)
    expected = evaluate(bind(op, **{k: copy_tensor(v) for k, v in bound.tensors.items()}, **bound.attrs))
    write_text(file, name)
    write_text(file, op.name)
    file.write(struct.pack("<i", len(op.inputs)))
    for declared in op.inputs:
        write_tensor(file, bound.tensors.get(declared.name), layouts.get(declared.name, "row-major"))
    numbers = [encoded(attr, bound.attrs[attr.name]) for attr in op.attrs]
    file.write(struct.pack(f"<i{len(numbers)}d", len(numbers), *numbers))
    results = op.active_results(bound.tensors, bound.attrs)
    places = [-1 if r.alias_of is None else [t.name for t in op.inputs].index(r.alias_of) for r in results]
    file.write(struct.pack("<i", len(results)))
    for place, tensor in zip(places, expected, strict=True):
        file.write(struct.pack("<i", place))
        write_tensor(file, tensor)


def cases_of(op: Op) -> Iterator[Case]:
    """Its own; of the matrix product, the small ones again with tokens for every kind of tile."""
    yield from op.cases
    if op.name == "gemm":
        small = (case for case in op.cases if case.id.startswith("small-"))
        yield from (replace(c, id=f"many-tokens-{c.id}", dims={**c.dims, "T": MANY_TOKENS}) for c in small)


def num_bytes(bound: Bound) -> int:
    return sum(raw_bytes(tensor).nbytes for tensor in bound.tensors.values())


def write_cases(path: Path) -> None:
    """Write all small cases, and those with a size at 0. Sizes at 1 are left to test_native_sizes.py."""
    with open(path, "wb") as file:
        for op in OPS:
            for case in cases_of(op):
                if case.full or weight_bytes(op, case) > LARGEST_BYTES:
                    continue
                bound = bind(op, **make_inputs(op, case))
                if num_bytes(bound) <= LARGEST_BYTES:
                    write_case(file, f"{op.name}/{case.id}", bound)
            for name, bound in calls(op, "= 0"):
                if num_bytes(bound) <= LARGEST_EDGE_BYTES:
                    with suppress(BadInput):  # the definition refuses it, before anything is written
                        write_case(file, f"{op.name}/{name}", bound)
