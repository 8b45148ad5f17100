"""One file per architecture; each builds a graph from ops."""

from __future__ import annotations

from collections.abc import Callable

from samebits.core.errors import UnknownName
from samebits.core.protocols import Hyperparameters
from samebits.core.shapes import TensorSpec
from samebits.graph import Graph
from samebits.models import gemma2, llama, qwen2, qwen3
from samebits.models.parts import Limits, ModelParts

ARCHITECTURES: dict[str, Callable[[ModelParts], Graph]] = {
    "llama": llama.build,
    "mistral": llama.build,
    "qwen2": qwen2.build,
    "qwen3": qwen3.build,
    "gemma2": gemma2.build,
}


def build_model(
    architecture: str, hp: Hyperparameters, weight_spec: Callable[[str], TensorSpec | None], limits: Limits
) -> Graph:
    """The graph of one step. Inputs: see models/parts.py; UnknownName for an architecture we do not have."""
    if architecture not in ARCHITECTURES:
        raise UnknownName("architecture", architecture, list(ARCHITECTURES))
    return ARCHITECTURES[architecture](ModelParts(hp, weight_spec, limits))
