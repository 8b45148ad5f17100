"""From a case and a seed to the op's inputs: the same bytes on every platform."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.format import FORMATS, BlockFormat, HostTensor
from samebits.core.numerics.counter import Stream
from samebits.core.numerics.rounding import narrow
from samebits.core.shapes import build_shape
from samebits.ops.record import FLOATS, Case, Op, Tensor

SPECIAL = np.array(
    [0.0, -0.0, 2.0**-149, -(2.0**-130), 2.0**-126, 2.0**-24, -(2.0**-16), 1e-20, 1e4, -1e4, 1.0, -1.0], np.float32
)


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


def default_input(tensor: Tensor, case: Case, stream: Stream) -> HostTensor:
    shape = build_shape(tensor.dims_choices[case.extra.get(f"{tensor.name}_dims", 0)], case.dims)
    sizes = tuple(int(d) for d in shape)  # type: ignore[arg-type]
    name = case.formats.get(tensor.name, tensor.formats[0])
    if name in FLOATS or isinstance(FORMATS[name], BlockFormat):
        values = stream.normal(sizes, case.extra.get("magnitude", 1.0))
        if case.extra.get("special"):
            values = with_special(values)
        return in_format(values, name)
    return np.zeros(sizes, FORMATS[name].dtype)


def with_special(x: np.ndarray) -> np.ndarray:
    """x with every third element a value that kernels trip over: zeros of both signs, denormals, far magnitudes."""
    flat = x.ravel().copy()
    places = np.arange(0, flat.size, 3)
    flat[places] = SPECIAL[np.arange(len(places)) % len(SPECIAL)]
    return flat.reshape(x.shape)


def in_format(x: np.ndarray, name: str) -> HostTensor:
    """float32 x in the named format."""
    fmt = FORMATS[name]
    if isinstance(fmt, BlockFormat):
        return fmt.pack(x)
    return narrow(x, fmt.dtype)  # type: ignore[arg-type]
