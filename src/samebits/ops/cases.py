"""From a case and a seed to the op's inputs: the same bytes on every platform."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from samebits.core.format import FORMATS, BlockFormat, HostTensor, Packed
from samebits.core.numerics.counter import Stream
from samebits.core.numerics.rounding import rounded
from samebits.core.shapes import build_shape
from samebits.ops.blocks import ANY_BYTES, any_blocks
from samebits.ops.record import FLOATS, Case, Input, Op
from samebits.ops.values import contents, with_special

DISTINCT_ROWS = 257  # of a drawn weight: a prime, so that tiles do not repeat


def make_inputs(op: Op, case: Case, seed: int = 0) -> dict[str, Any]:
    """Inputs and attrs of a case, ready for `bind`. Arrays are fresh, so an op may write into its caches."""
    stream = Stream(f"{op.name}/{case.id}", seed)
    maker = op.make_inputs or default_inputs
    return {**maker(op, case, stream), **case.attrs}


def default_inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    """Bell-shaped values for every required or given float input; zeros for indices."""
    return {
        t.name: default_input(t, case, stream.child(t.name))
        for t in op.inputs
        if not t.optional or t.name in case.given
    }


def default_input(tensor: Input, case: Case, stream: Stream) -> HostTensor:
    shape = build_shape(tensor.dims_choices[case.extra.get(f"{tensor.name}_dims", 0)], case.dims)
    sizes = tuple(int(d) for d in shape)  # type: ignore[arg-type]
    name = case.formats.get(tensor.name, tensor.formats[0])
    is_float = name in FLOATS or isinstance(FORMATS[name], BlockFormat)
    if is_float and "values" in case.extra:
        kind = case.extra.get("weights" if tensor.raw else "values", case.extra["values"])
        return _drawn(tensor, sizes, name, kind, stream)
    if is_float:
        values = stream.normal(sizes, case.extra.get("magnitude", 1.0))
        if case.extra.get("special"):
            values = with_special(values)
        return in_format(values, name)
    return np.zeros(sizes, FORMATS[name].dtype)


def _drawn(tensor: Input, shape: tuple[int, ...], name: str, kind: str, stream: Stream) -> HostTensor:
    """A float tensor of a drawn case. Rows of a weight come from a pool: packing 10^5 of them would take seconds."""
    if not tensor.raw or len(shape) < 2:
        return in_format(contents(kind, stream, shape, name), name)
    count = math.prod(shape[:-1])
    pool_shape = (min(count, DISTINCT_ROWS), shape[-1])
    fmt = FORMATS[name]
    if kind == ANY_BYTES and isinstance(fmt, BlockFormat):
        pool: HostTensor = any_blocks(fmt, pool_shape, stream)
    else:
        pool = in_format(contents("uniform" if kind == ANY_BYTES else kind, stream, pool_shape, name), name)
    if count <= DISTINCT_ROWS:
        return pool.reshape(shape) if isinstance(pool, np.ndarray) else _reshaped(pool, shape)
    rows = stream.child("rows").integers(0, DISTINCT_ROWS, (count,))
    return pool[rows].reshape(shape) if isinstance(pool, np.ndarray) else _reshaped(pool[rows], shape)


def _reshaped(x: Packed, shape: tuple[int, ...]) -> Packed:
    return Packed(x.format, x.data.reshape(*shape[:-1], x.data.shape[-1]), x.scale)


def in_format(x: np.ndarray, name: str) -> HostTensor:
    """float32 x in the named format, not settled."""
    fmt = FORMATS[name]
    if isinstance(fmt, BlockFormat):
        return fmt.pack(x)
    return rounded(x, fmt.dtype)  # type: ignore[arg-type]
