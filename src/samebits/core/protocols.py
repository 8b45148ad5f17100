"""What rooms know of each other without importing each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from samebits.core.shapes import Env, TensorSpec


class ResultSpec(Protocol):
    """The part of a result's record that a graph needs."""

    @property
    def alias_of(self) -> str | None:
        """The input it is written into, in place."""
        ...


class OpSpec(Protocol):
    """The part of an op record that a graph needs."""

    @property
    def name(self) -> str: ...

    @property
    def writes(self) -> tuple[str, ...]:
        """Inputs updated in place."""
        ...

    @property
    def caches(self) -> tuple[str, ...]:
        """Inputs that are caches, written or only read."""
        ...

    @property
    def is_view(self) -> bool:
        """Whether its one result is columns of its one input, unchanged."""
        ...

    @property
    def view_start(self) -> Callable[..., int] | None:
        """(**attrs), of a view: the input's column where the result's rows begin."""
        ...

    def infer(self, specs: dict[str, TensorSpec], attrs: dict[str, Any], env: Env) -> tuple[TensorSpec, ...]:
        """Specs of the results."""
        ...

    def active_results(self, present: Iterable[str], attrs: dict[str, Any]) -> tuple[ResultSpec, ...]:
        """The results of a call with these inputs."""
        ...


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """What every room needs of a model."""

    num_layers: int
    vocab_size: int
    context_len: int
