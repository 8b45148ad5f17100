"""Binding arguments to an op record, checking them, and running the reference.

Every check happens before the reference starts, so a bad call writes nothing. The same binding serves every
backend: a kernel never sees arguments that the record does not allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, HostTensor, Packed, dtype_name, format_of
from samebits.core.numerics.rounding import narrow, widen
from samebits.core.shapes import Env, TensorSpec, describe, match_shape
from samebits.ops.record import FLOATS, Attr, Op, Tensor

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Bound:
    """A checked call: host tensors by input name (absent ones left out), attrs complete, dimensions bound."""

    op: Op
    tensors: dict[str, HostTensor]
    attrs: dict[str, Any]
    env: Env

    @property
    def specs(self) -> dict[str, TensorSpec]:
        return {name: spec_of(x) for name, x in self.tensors.items()}

    def result_specs(self) -> tuple[TensorSpec, ...]:
        return self.op.infer(self.specs, self.attrs, self.env)


def spec_of(x: HostTensor) -> TensorSpec:
    """Shape and format of a host tensor."""
    return TensorSpec(tuple(x.shape), format_of(x).name)


def bind(op: Op, /, *args: Any, **kwargs: Any) -> Bound:
    """Checks a call against the record. Arguments are inputs by position or name, attrs by name.

    BadInput names the op, the argument, what was given and what is needed.
    """
    given = _by_name(op, args, kwargs)
    env: Env = {}
    tensors: dict[str, HostTensor] = {}
    for tensor in op.inputs:
        value = given.pop(tensor.name, None)
        if value is None:
            if not tensor.optional:
                raise BadInput(op.name, tensor.name, "nothing", f"a tensor {tensor.dims_choices[0]}")
            continue
        tensors[tensor.name] = _check_tensor(op, tensor, value, env)
    attrs = {a.name: _check_attr(op, a, given.pop(a.name, a.default)) for a in op.attrs}
    bound = Bound(op, tensors, attrs, env)
    if op.check is not None:
        op.check(**_arguments(bound))
    return bound


def evaluate(bound: Bound) -> tuple[HostTensor, ...]:
    """Runs the reference: the results in order, each rounded once to its format.

    Results that alias an input are that input, written in place.
    """
    op = bound.op
    returned = op.reference(**_arguments(bound))
    values = returned if isinstance(returned, tuple) else (returned,)
    finished: list[HostTensor] = []
    for result, value, spec in zip(
        op.active_results(bound.tensors, bound.attrs), values, bound.result_specs(), strict=True
    ):
        if result.alias_of is None and spec.format in FLOATS:
            value = narrow(value, FORMATS[spec.format].dtype)  # type: ignore[arg-type]
        finished.append(value)
    return tuple(finished)


def call(op: Op, /, *args: Any, **kwargs: Any) -> Any:
    """bind + evaluate; one array, or a tuple where the op has several results."""
    results = evaluate(bind(op, *args, **kwargs))
    return results[0] if len(results) == 1 else results


def _by_name(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = [t.name for t in op.inputs]
    if len(args) > len(names):
        raise BadInput(op.name, "arguments", f"{len(args)} by position", f"at most {len(names)}: {', '.join(names)}")
    given = dict(zip(names, args, strict=False))
    known = {*names, *(a.name for a in op.attrs)}
    for name, value in kwargs.items():
        if name not in known:
            raise BadInput(op.name, name, "an unknown argument", f"one of {', '.join(sorted(known))}")
        if name in given:
            raise BadInput(op.name, name, "two values", "one")
        given[name] = value
    return given


def _check_tensor(op: Op, tensor: Tensor, value: Any, env: Env) -> HostTensor:
    if not isinstance(value, (np.ndarray, Packed)):
        raise BadInput(op.name, tensor.name, type(value).__name__, "a numpy array or a packed tensor")
    found = value.format.name if isinstance(value, Packed) else dtype_name(value)
    if found not in tensor.formats:
        raise BadInput(op.name, tensor.name, found, " or ".join(tensor.formats))
    storage = value.data if isinstance(value, Packed) else value
    if not storage.flags.aligned:
        raise BadInput(
            op.name, tensor.name, "a misaligned buffer", f"an address that is a multiple of {storage.itemsize}"
        )
    if tensor.name in op.writes and not storage.flags.writeable:
        raise BadInput(op.name, tensor.name, "a read-only buffer", "one that can be written in place")
    for dims in tensor.dims_choices:
        trial = dict(env)
        if match_shape(dims, tuple(value.shape), trial):
            env.update(trial)
            return value
    needed = " or ".join(describe(d, env) for d in tensor.dims_choices)
    raise BadInput(op.name, tensor.name, f"shape {list(value.shape)}", needed)


def _check_attr(op: Op, attr: Attr, value: Any) -> Any:
    if value is None and attr.default is None:
        return None
    if attr.kind is float and type(value) in (int, float, np.float32, np.float64):
        if not abs(value) <= LARGEST_FLOAT32:  # NaN too: it compares false
            raise BadInput(op.name, attr.name, value, "a finite float32 number")
        value = float(value)
    elif attr.kind is int and isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        value = int(value)
    if not isinstance(value, attr.kind) or (isinstance(value, bool) and attr.kind is not bool):
        raise BadInput(op.name, attr.name, " ".join(repr(value).split()), attr.kind.__name__)
    needed = attr.accepts(value) if attr.accepts else None
    if needed:
        raise BadInput(op.name, attr.name, repr(value), needed)
    return value


def _arguments(bound: Bound) -> dict[str, Any]:
    """What the reference is called with: absent inputs are None, floats are float32 unless raw."""
    arguments: dict[str, Any] = {}
    for tensor in bound.op.inputs:
        value = bound.tensors.get(tensor.name)
        if isinstance(value, np.ndarray) and not tensor.raw and dtype_name(value) in FLOATS:
            value = widen(value)
        arguments[tensor.name] = value
    return {**arguments, **bound.attrs}
