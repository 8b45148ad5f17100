"""The native kernels as records: one for every op the compiled module has.

A record's `run` adds the call to a native program instead of computing: run(program, inputs, outputs, attrs,
barrier), where inputs and outputs are the program's tensor numbers in the order of the op's record, -1 for an
input that is absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from samebits.core.format import BLOCK, FORMATS
from samebits.core.tiers import Tier
from samebits.kernels.cpp import native
from samebits.kernels.cpp.weights import FORMAT_CODES, pack_rows
from samebits.kernels.record import Kernel, KernelTable, OpCall
from samebits.ops.record import OPS, Attr, Op

# Native numbers of named choices, in the order of runtime/tensor.h and of the kernels.
LAYOUT_CODES = {name: code for code, name in enumerate(("row-major", "rows16", "k_lanes", "v_rows"))}
CHOICES = {
    "layout": ("NHD", "HND"),
    "source": ("NHD", "HND"),
    "target": ("NHD", "HND"),
    "form": ("tanh", "erf"),
    "format": tuple(FORMAT_CODES),
    "activation": ("none", "silu", "gelu_tanh", "clamped"),
    "scores": ("softmax", "sigmoid", "chosen"),
    "v_heads": ("grouped", "tiled"),
}


def _whole_blocks(call: OpCall) -> str | None:
    """Rows are decoded in blocks of 32; NVFP4 has some of half as many."""
    table = call.inputs["table"]
    width = table.shape[-1]
    if FORMATS[table.format].is_block and isinstance(width, int) and width % BLOCK:
        return f"cpp/embedding takes {table.format} tables whose width is a multiple of {BLOCK}, not {width}"
    return None


REFUSES = {"embedding": _whole_blocks}


def encoded(attr: Attr, value: Any) -> float:
    """An attr as the number a native call carries; NaN for an absent one."""
    if value is None:
        return math.nan
    return float(CHOICES[attr.name].index(value)) if attr.kind is str else float(value)


def _adds_call(op: Op) -> Callable[..., None]:
    def add(
        program: Any, inputs: Sequence[int], outputs: Sequence[int], attrs: Mapping[str, Any], barrier: bool
    ) -> None:
        numbers = [encoded(attr, attrs[attr.name]) for attr in op.attrs]
        program.add_call(op.name, list(inputs), list(outputs), numbers, barrier)

    add.__name__ = op.name
    return add


@cache
def cpp_kernels() -> KernelTable:
    """All native kernels; Unavailable where the module was not built."""
    module = native()
    table = KernelTable("cpp")
    for name in module.ops(module.isas()[0]):
        op = OPS[name]
        prepack = dict.fromkeys(op.weights, pack_rows)
        table.add(Kernel(op, "cpp", Tier.PORTABLE, _adds_call(op), REFUSES.get(name), prepack))
    return table
