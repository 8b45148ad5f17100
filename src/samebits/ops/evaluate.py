"""Binding arguments to an op record, checking them, and running the reference.

Every check happens before the reference starts, so a bad call writes nothing. The same binding serves every
backend: a kernel never sees arguments that the record does not allow, nor floats that are not settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import BLOCK, FORMATS, HostTensor, Packed, dtype_name, format_of
from samebits.core.numerics.rounding import narrow, widen
from samebits.core.numerics.settling import SMALLEST, settled
from samebits.core.shapes import Env, TensorSpec, describe, match_shape, upper
from samebits.formats.nvfp4 import SMALLEST_SCALE
from samebits.ops.record import FLOATS, Attr, Input, Op

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Bound:
    """A checked call: settled host tensors by input name (absent ones left out), attrs complete, dimensions bound."""

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

    Floats that are not settled are: in a copy, or in place where the op updates the input.
    BadInput names the op, the argument, what was given and what is needed.
    """
    given = name_arguments(op, args, kwargs)
    tensors = {t.name: given[t.name] for t in op.inputs if given.get(t.name) is not None}
    specs = {name: _host_spec(op, name, value) for name, value in tensors.items()}
    attrs, env = bind_specs(op, specs, given)
    for tensor in op.inputs:
        if tensor.name in tensors:
            _check_storage(op, tensor.name, tensors[tensor.name])
            if tensor.name not in op.writes:
                tensors[tensor.name] = _settled(op, tensor, tensors[tensor.name])
    bound = Bound(op, tensors, attrs, env)
    bound.result_specs()  # a size that the results cannot have is refused here
    if op.check is not None:
        op.check(**call_arguments(bound))
    for tensor in op.inputs:
        if tensor.name in op.writes and tensor.name in tensors:
            _settled(op, tensor, tensors[tensor.name])  # in place, and last: a call that is refused changes nothing
    return bound


def bind_specs(op: Op, specs: Mapping[str, TensorSpec], attrs: Mapping[str, Any]) -> tuple[dict[str, Any], Env]:
    """Checks shapes, formats and attrs, symbols included: (complete attrs, bound dimensions) or BadInput."""
    env: Env = {}
    for tensor in op.inputs:
        spec = specs.get(tensor.name)
        if spec is not None:
            _match_spec(op, tensor, spec, env)
        elif not tensor.optional:
            raise BadInput(op.name, tensor.name, "nothing", f"a tensor {tensor.dims_choices[0]}")
    return {a.name: check_attr(op, a, attrs.get(a.name, a.default)) for a in op.attrs}, env


def _match_spec(op: Op, tensor: Input, spec: TensorSpec, env: Env) -> None:
    """Bind the tensor's dimensions in `env`. Raise BadInput for a format or shape that the op does not take."""
    if spec.format not in tensor.formats:
        raise BadInput(op.name, tensor.name, spec.format, " or ".join(tensor.formats))
    for dims in tensor.dims_choices:
        trial = dict(env)
        if match_shape(dims, spec.shape, trial):
            env.update(trial)
            break
    else:
        needed = " or ".join(describe(d, env) for d in tensor.dims_choices)
        raise BadInput(op.name, tensor.name, f"shape [{', '.join(map(str, spec.shape))}]", needed)
    if tensor.in_blocks and FORMATS[spec.format].is_block and upper(spec.shape[-1]) % BLOCK:
        given = f"rows of {spec.shape[-1]} {spec.format} elements"
        raise BadInput(op.name, tensor.name, given, f"rows of a multiple of {BLOCK}")


def evaluate(bound: Bound) -> tuple[HostTensor, ...]:
    """Runs the reference: the results in order, each rounded once to its format.

    Results that alias an input are that input, written in place.
    """
    op = bound.op
    with np.errstate(over="ignore", invalid="ignore"):  # infinities, and what follows from them, are the definition
        returned = op.reference(**call_arguments(bound))
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


def name_arguments(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """A call's arguments by name; BadInput for one too many, unknown or given twice."""
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


def _host_spec(op: Op, name: str, value: Any) -> TensorSpec:
    if not isinstance(value, (np.ndarray, Packed)):
        raise BadInput(op.name, name, type(value).__name__, "a numpy array or a packed tensor")
    found = value.format.name if isinstance(value, Packed) else dtype_name(value)
    return TensorSpec(tuple(value.shape), found)


def _check_storage(op: Op, name: str, value: HostTensor) -> None:
    storage = value.data if isinstance(value, Packed) else value
    if not storage.flags.aligned:
        raise BadInput(op.name, name, "a misaligned buffer", f"an address that is a multiple of {storage.itemsize}")
    if name in op.writes and not storage.flags.writeable:
        raise BadInput(op.name, name, "a read-only buffer", "one that can be written in place")


def _settled(op: Op, tensor: Input, value: HostTensor) -> HostTensor:
    """The input with settled floats: itself where they are, or where the op writes it.

    Codes of a block stay as they are, and so does a cache that the op only moves or writes to: cells that nobody wrote
    hold anything.
    """
    if isinstance(value, Packed):
        if not (value.scale == 0 or abs(value.scale) >= SMALLEST_SCALE):
            raise BadInput(op.name, tensor.name, f"a tensor scale of {value.scale:g}", "0, or 2^-30 and more")
        value.format.check(value.data, op.name, tensor.name)
        return value
    is_written = tensor.name in op.writes
    if dtype_name(value) not in FLOATS or (tensor.is_cache and (is_written or op.smallest is None)):
        return value
    return settled(value, in_place=is_written)


def check_attr(op: Op, attr: Attr, value: Any) -> Any:
    """The value as the record's type, a float settled; BadInput where it is of another type or refused."""
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
    return 0.0 if isinstance(value, float) and abs(value) < SMALLEST else value


def call_arguments(bound: Bound) -> dict[str, Any]:
    """What the reference is called with: absent inputs are None, floats are float32 unless raw."""
    arguments: dict[str, Any] = {}
    for tensor in bound.op.inputs:
        value = bound.tensors.get(tensor.name)
        if isinstance(value, np.ndarray) and not tensor.raw and dtype_name(value) in FLOATS:
            value = widen(value)
        arguments[tensor.name] = value
    return {**arguments, **bound.attrs}
