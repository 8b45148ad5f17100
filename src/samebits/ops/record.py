"""The op record: everything the project knows of an op, in one place.

The conformance cases, the support matrix, the docs table and the functional API follow from it.
An op is declared by decorating its reference, which is its definition:

    @define_op(
        inputs=[Input("x", "... K", FLOATS), Input("weight", "K", FLOATS, optional=True)],
        attrs=[Attr("eps", float, 1e-5)],
        results=[Result("y", "... K", "=x")],
        ...)
    def rms_norm(x, weight=None, *, eps=1e-5): ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import samebits.formats  # noqa: F401  (fills FORMATS)
from samebits.core.format import HostTensor
from samebits.core.registry import Registry
from samebits.core.shapes import Env, Shape, TensorSpec, axis_names, build_shape, match_shape
from samebits.ops.space import Space

FLOATS = ("f32", "f16", "bf16")
WEIGHTS = (
    *(*FLOATS, "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k", "nvfp4", "mxfp4"),
    *("q2_k", "q3_k", "iq4_nl", "iq4_xs"),
)
BLOCK_WEIGHTS = tuple(f for f in WEIGHTS if f not in FLOATS)
CACHES = (*FLOATS, "q8_0", "q4_0")
STATES = ("f32",)  # what a sequence keeps in its slot
INDEX = ("i32",)


@dataclass(frozen=True)
class Input:
    """An input. Float inputs reach the reference widened to float32 unless `raw`.

    in_blocks  whether the op goes through rows of a block format in blocks of 32, so that no row may end inside one
    """

    name: str
    dims: str | tuple[str, ...]  # alternatives, the first that fits is taken
    formats: tuple[str, ...]
    doc: str
    optional: bool = False
    raw: bool = False  # the reference needs the stored format: weights and caches
    in_blocks: bool = False

    @property
    def dims_choices(self) -> tuple[str, ...]:
        return (self.dims,) if isinstance(self.dims, str) else self.dims

    def axes(self, shape: Shape) -> tuple[str, ...]:
        """Return the name of each axis of a tensor of this shape, which must fit; "..." for every leading axis."""
        return axis_names(next(d for d in self.dims_choices if match_shape(d, shape, {})), shape)

    @property
    def is_cache(self) -> bool:
        """Whether it is memory of pages that outlives a step."""
        return self.raw and self.formats == CACHES

    @property
    def is_weight(self) -> bool:
        """Whether a model loads it: a constant that may be in any block format."""
        return self.raw and set(BLOCK_WEIGHTS) <= set(self.formats)


@dataclass(frozen=True)
class Attr:
    """A constant argument. `accepts` returns nothing, or what is needed instead.

    `words` are all that it may be where each has a decomposition of its own.
    """

    name: str
    kind: type
    default: Any
    doc: str
    accepts: Callable[[Any], str | None] | None = None
    words: tuple[str, ...] = ()


def positive(value: float) -> str | None:
    return None if value > 0 else "1 or more"


def float_format(name: str) -> str | None:
    return None if name in FLOATS else f"one of {', '.join(FLOATS)}"


@dataclass(frozen=True)
class Result:
    """An output. `format` is a format name, "=x" for that of input x, or "@a" for that named by attr a."""

    name: str
    dims: str
    format: str
    doc: str = ""
    alias_of: str | None = None  # the input it is written into, in place
    when: str | None = None  # a bool attr without which the result is not returned

    def axes(self, shape: Shape) -> tuple[str, ...]:
        """Return the name of each axis of a result of this shape; "..." for every leading axis."""
        return axis_names(self.dims, shape)


@dataclass(frozen=True)
class Case:
    """Sizes, formats and attrs of one conformance case. Inputs follow from it and a seed, see ops/cases.py."""

    id: str
    dims: dict[str, Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    formats: dict[str, str] = field(default_factory=dict)  # input name -> format; the first accepted one otherwise
    given: tuple[str, ...] = ()  # optional inputs that take part
    extra: dict[str, Any] = field(default_factory=dict)  # what an op's own input maker reads
    full: bool = False  # left out of the quick set


@dataclass(frozen=True)
class Op:
    """See the module text. `reference(**inputs, **attrs)` returns one array or a tuple of them."""

    name: str
    summary: str
    reference: Callable[..., Any]
    inputs: tuple[Input, ...]
    attrs: tuple[Attr, ...]
    results: tuple[Result, ...]
    invariant_axes: tuple[str, ...]  # dimensions along which a row's bits do not depend on the others
    make_cases: Callable[[], list[Case]]  # called when they are asked for: a model runs without them
    aliases: tuple[str, ...] = ()
    check: Callable[..., None] | None = None  # cross-argument checks, same arguments as the reference
    make_inputs: Callable[..., dict[str, HostTensor]] | None = None  # overrides the default maker, see ops/cases.py
    decompose: Callable[..., Any] | None = None  # (builder, **inputs, **attrs): the unfused graph, bit-equal on f32
    shape_env: Callable[[dict[str, TensorSpec], dict[str, Any]], Env] | None = None  # dims results need beyond inputs
    equivalents: Callable[..., Any] | None = None  # other calls with the same bits, see ops/equivalents.py
    make_space: Callable[[], Space] | None = None  # what kernels may branch on, see ops/space.py; None in tests
    smallest: int | None = None  # no intermediate but 0 is below 2^smallest; None for an op that computes no float
    operations: Callable[..., int] | None = None  # arithmetic operations of a call; elements of the results if absent
    cache_bytes: Callable[..., int] | None = None  # bytes of its caches that a call touches; all of them if absent
    weight_bytes: Callable[..., int] | None = None  # bytes of its weights that a call reads; all of them if absent
    freedom: str = ""  # what `fast` leaves open, as verify/bounds has it; nothing for an op whose results are exact
    view_start: Callable[..., int] | None = None  # (**attrs), of a view: the input's column where result rows begin

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """Its conformance cases."""
        cases = tuple(self.make_cases())
        if len({c.id for c in cases}) != len(cases) or not cases:
            raise TypeError(f"{self.name}: case ids must exist and be unique")
        return cases

    @cached_property
    def space(self) -> Space | None:
        """What kernels may branch on."""
        return None if self.make_space is None else self.make_space()

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """Inputs that are updated in place."""
        return tuple(r.alias_of for r in self.results if r.alias_of)

    @property
    def is_view(self) -> bool:
        """Whether its one result is columns of its one input, unchanged: a backend need not move them."""
        return self.view_start is not None

    @cached_property
    def caches(self) -> tuple[str, ...]:
        """Inputs that are caches, written or only read."""
        return tuple(t.name for t in self.inputs if t.is_cache)

    @cached_property
    def weights(self) -> tuple[str, ...]:
        """Inputs that a model loads once: backends may rearrange them then."""
        return tuple(t.name for t in self.inputs if t.is_weight)

    @property
    def format_axis(self) -> Input:
        """The input whose format the support matrix varies: the first raw one, else the first float one."""
        raw = [t for t in self.inputs if t.raw]
        return raw[0] if raw else self.inputs[0]

    def active_results(self, present: Iterable[str], attrs: dict[str, Any]) -> tuple[Result, ...]:
        """The results of a call with these inputs: none is written into an absent input."""
        return tuple(
            r
            for r in self.results
            if (r.when is None or attrs[r.when]) and (r.alias_of is None or r.alias_of in present)
        )

    def infer(self, specs: dict[str, TensorSpec], attrs: dict[str, Any], env: Env) -> tuple[TensorSpec, ...]:
        """The specs of the results, given the bound dimensions."""
        named: Env = {**env, **{k: v for k, v in attrs.items() if type(v) is int}}
        if self.shape_env is not None:
            named.update(self.shape_env(specs, attrs))
        return tuple(
            specs[r.alias_of] if r.alias_of else TensorSpec(build_shape(r.dims, named), _result_format(r, specs, attrs))
            for r in self.active_results(specs, attrs)
        )


OPS: Registry[Op] = Registry("op")


def _result_format(result: Result, specs: dict[str, TensorSpec], attrs: dict[str, Any]) -> str:
    if result.format.startswith("="):
        return specs[result.format[1:]].format
    if result.format.startswith("@"):
        return str(attrs[result.format[1:]])
    return result.format


def _check_signature(function: Callable[..., Any], inputs: Iterable[Input], attrs: Iterable[Attr]) -> None:
    """The reference's parameters are the record's, in order: inputs by position, attrs by keyword."""
    found = [(p.name, p.kind is p.KEYWORD_ONLY) for p in inspect.signature(function).parameters.values()]
    stated = [(t.name, False) for t in inputs] + [(a.name, True) for a in attrs]
    if found != stated:
        raise TypeError(f"{function.__name__}: parameters {found} differ from the record's {stated}")


def define_op(
    *,
    inputs: list[Input],
    results: list[Result],
    cases: Callable[[], list[Case]],
    attrs: list[Attr] | None = None,
    aliases: tuple[str, ...] = (),
    invariant_axes: tuple[str, ...] = (),
    check: Callable[..., None] | None = None,
    make_inputs: Callable[..., dict[str, HostTensor]] | None = None,
    decompose: Callable[..., Any] | None = None,
    shape_env: Callable[[dict[str, TensorSpec], dict[str, Any]], Env] | None = None,
    equivalents: Callable[..., Any] | None = None,
    space: Callable[[], Space] | None = None,
    smallest: int | None = None,
    operations: Callable[..., int] | None = None,
    cache_bytes: Callable[..., int] | None = None,
    weight_bytes: Callable[..., int] | None = None,
    freedom: str = "",
    view_start: Callable[..., int] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the decorated reference as an op of its own name; returns the reference unchanged."""

    def register(reference: Callable[..., Any]) -> Callable[..., Any]:
        attr_records = tuple(attrs or ())
        _check_signature(reference, inputs, attr_records)
        op = Op(
            name=reference.__name__,
            summary=(reference.__doc__ or "").strip().splitlines()[0],
            reference=reference,
            inputs=tuple(inputs),
            attrs=attr_records,
            results=tuple(results),
            invariant_axes=invariant_axes,
            make_cases=cases,
            aliases=aliases,
            check=check,
            make_inputs=make_inputs,
            decompose=decompose,
            shape_env=shape_env,
            equivalents=equivalents,
            make_space=space,
            smallest=smallest,
            operations=operations,
            cache_bytes=cache_bytes,
            weight_bytes=weight_bytes,
            freedom=freedom,
            view_start=view_start,
        )
        OPS.add(op.name, op, aliases)
        return reference

    return register
