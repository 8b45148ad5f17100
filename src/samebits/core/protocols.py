"""What rooms know of each other without importing each other."""

from __future__ import annotations

from typing import Any, Protocol

from samebits.core.shapes import Env, TensorSpec


class OpSpec(Protocol):
    """The part of an op record that a graph needs."""

    @property
    def name(self) -> str: ...

    @property
    def writes(self) -> tuple[str, ...]:
        """Inputs updated in place."""
        ...

    def infer(self, specs: dict[str, TensorSpec], attrs: dict[str, Any], env: Env) -> tuple[TensorSpec, ...]:
        """Specs of the results."""
        ...
