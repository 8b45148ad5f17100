"""Llama 2 and 3.x, TinyLlama, SmolLM2, Mistral (with its sliding window)."""

from __future__ import annotations

from samebits.graph import Graph
from samebits.models.parts import ModelParts


def build(m: ModelParts) -> Graph:
    """Pre-norm decoder: attention and a gated FFN, each added to the residual stream."""
    h = m.embed()
    for layer in range(m.hp.num_layers):
        h = m.b.add(h, m.attention(m.norm(h, f"layers.{layer}.attn_norm"), layer))
        h = m.b.add(h, m.gated_ffn(m.norm(h, f"layers.{layer}.ffn_norm"), layer))
    return m.finish(h)
