"""Qwen3: Llama with an RMSNorm on every query and key head before the rotation."""

from __future__ import annotations

from samebits.graph import Graph
from samebits.models import llama
from samebits.models.parts import ModelParts


def build(m: ModelParts) -> Graph:
    """The head norms are part of the checkpoint, so the Llama graph picks them up."""
    return llama.build(m)
