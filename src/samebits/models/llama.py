"""Llama 2 and 3.x, TinyLlama, SmolLM2, Mistral (with its sliding window)."""

from __future__ import annotations

from samebits.graph import Graph
from samebits.models.parts import ModelParts


def build(m: ModelParts) -> Graph:
    """Pre-norm decoder: attention and a SiLU-gated FFN, each added to the residual stream."""
    h = m.embed()
    for layer in range(m.hp.num_layers):
        attended = m.attention(m.norm(h, f"layers.{layer}.attn_norm"), layer, window_left=m.hp.window_left(layer))
        h = m.b.add(h, attended)
        h = m.b.add(h, m.gated_ffn(m.norm(h, f"layers.{layer}.ffn_norm"), layer, "silu_and_mul"))
    return m.finish(h)
