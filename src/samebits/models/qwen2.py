"""Qwen2 and 2.5: Llama with biases on Q, K and V."""

from __future__ import annotations

from samebits.graph import Graph
from samebits.models import llama
from samebits.models.parts import ModelParts


def build(m: ModelParts) -> Graph:
    """The biases are part of the checkpoint, so the Llama graph picks them up."""
    return llama.build(m)
