"""Shapes whose dimensions may be symbols with an upper bound, and the small language ops state them in.

An op writes dimensions as text: "T Hq D", "... K", "B+1", "2*H", "3". A name is bound by the first tensor
that carries it and must agree everywhere else; "..." stands for any number of leading axes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod

DIM_TEXT = re.compile(r"^(?:(?P<factor>\d+)\*)?(?P<name>[A-Za-z_]\w*)(?:\+(?P<plus>\d+))?$")


@dataclass(frozen=True)
class Sym:
    """A dimension known only at run time: factor * name + plus, where `name` is at most `limit`."""

    name: str
    limit: int
    factor: int = 1
    plus: int = 0

    @property
    def upper(self) -> int:
        return self.factor * self.limit + self.plus

    def value(self, dims: Mapping[str, int]) -> int:
        """Its size once the names have theirs; KeyError for one that has none."""
        return self.factor * dims[self.name] + self.plus

    def __str__(self) -> str:
        shown = self.name if self.factor == 1 else f"{self.factor}*{self.name}"
        return f"{shown}+{self.plus}" if self.plus else shown


Dim = int | Sym
Shape = tuple[Dim, ...]
Env = dict[str, Dim | Shape]  # dimension name -> size; "..." -> the leading axes


@dataclass(frozen=True)
class TensorSpec:
    """Shape and format name: all a compiler may know of a tensor."""

    shape: Shape
    format: str

    @property
    def upper_shape(self) -> tuple[int, ...]:
        """The shape with symbols at their upper bound."""
        return tuple(upper(d) for d in self.shape)

    @property
    def num_elements(self) -> int:
        """How many, with symbols at their upper bound."""
        return prod(self.upper_shape)

    def at(self, dims: Mapping[str, int]) -> TensorSpec:
        """The spec of one step, symbols at the sizes `dims` gives them; KeyError for one that has none."""
        return TensorSpec(tuple(d.value(dims) if isinstance(d, Sym) else d for d in self.shape), self.format)

    def takes(self, given: TensorSpec) -> bool:
        """Whether memory of the spec `given` can serve: same format, fixed sizes equal, others within their bound."""
        return (given.format, len(given.shape)) == (self.format, len(self.shape)) and all(
            upper(have) == want if isinstance(want, int) else upper(have) <= want.upper
            for have, want in zip(given.shape, self.shape, strict=True)
        )

    def __str__(self) -> str:
        return f"{self.format}[{', '.join(str(d) for d in self.shape)}]"


def upper(dim: Dim) -> int:
    """The largest value a dimension can take."""
    return dim.upper if isinstance(dim, Sym) else dim


def joined_axis(whole: Shape, part: Shape) -> int:
    """The axis along which parts were joined to a whole: the first on which they differ."""
    return next(axis for axis, (a, b) in enumerate(zip(whole, part, strict=True)) if a != b)


@cache
def _terms(dims: str) -> tuple[tuple[str, int, int], ...]:
    """(name, factor, plus) of every dimension that the text states; a number has no name, "..." no factor."""
    terms: list[tuple[str, int, int]] = []
    for text in dims.split():
        parts = DIM_TEXT.match(text)
        if text == "..." and not terms:
            terms.append((text, 0, 0))
        elif text.isdigit():
            terms.append(("", 0, int(text)))
        elif parts is not None:
            terms.append((parts["name"], int(parts["factor"] or 1), int(parts["plus"] or 0)))
        else:
            raise ValueError(f"bad dimension text {text!r}")
    return tuple(terms)


def _match_dim(term: tuple[str, int, int], size: Dim, env: Env) -> bool:
    name, factor, plus = term
    if not name:
        return size == plus
    if isinstance(size, Sym):
        if (size.plus - plus) % factor or size.factor % factor:
            return False
        same = factor == 1 and not plus
        bound: Dim = size if same else Sym(size.name, size.limit, size.factor // factor, (size.plus - plus) // factor)
    else:
        bound, rest = divmod(size - plus, factor)
        if rest or bound < 0:
            return False
    return bool(env.setdefault(name, bound) == bound)


def match_shape(dims: str, shape: Shape, env: Env) -> bool:
    """Whether `shape` fits the text; binds new names in `env`. On False `env` may hold partial bindings."""
    terms = _terms(dims)
    if terms and terms[0][0] == "...":
        num_leading = len(shape) - (len(terms) - 1)
        if num_leading < 0 or env.setdefault("...", shape[:num_leading]) != shape[:num_leading]:
            return False
        terms, shape = terms[1:], shape[num_leading:]
    return len(terms) == len(shape) and all(_match_dim(t, d, env) for t, d in zip(terms, shape, strict=True))


def axis_names(dims: str, shape: Shape) -> tuple[str, ...]:
    """Return the text of each axis of a shape that fits `dims`, "..." for every leading axis."""
    texts = dims.split()
    if texts and texts[0] == "...":
        texts = ["..."] * (len(shape) - len(texts) + 1) + texts[1:]
    return tuple(texts)


def build_shape(dims: str, env: Env) -> Shape:
    """The shape that the text stands for under `env`; KeyError for an unbound name."""
    shape: list[Dim] = []
    for name, factor, plus in _terms(dims):
        if not name:
            shape.append(plus)
            continue
        bound = env[name]
        if name == "...":
            shape.extend(bound if isinstance(bound, tuple) else (bound,))
        elif isinstance(bound, int):
            shape.append(factor * bound + plus)
        elif isinstance(bound, Sym):
            shape.append(Sym(bound.name, bound.limit, factor * bound.factor, factor * bound.plus + plus))
        else:
            raise ValueError(f"{name} is not one dimension")
    return tuple(shape)


def describe(dims: str, env: Env) -> str:
    """The text with the sizes known so far, for an error message: "[T=3, K=64]"."""
    shown = []
    for text in dims.split():
        parts = DIM_TEXT.match(text)
        bound = env.get(parts["name"]) if parts else None
        shown.append(
            text
            if bound is None
            else f"{text}, {parts['name']}={bound}"
            if parts and text != parts["name"]
            else f"{text}={bound}"
        )
    return f"[{', '.join(shown)}]"
