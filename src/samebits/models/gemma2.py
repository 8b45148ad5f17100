"""Gemma 2: norms on both sides of each block, soft caps, every other layer in a sliding window."""

from __future__ import annotations

from samebits.graph import Graph
from samebits.models.parts import ModelParts


def build(m: ModelParts) -> Graph:
    """Caps, windows and the embedding's scale are hyperparameters; the post norms are what is new."""
    h = m.embed()
    for layer in range(m.hp.num_layers):
        name = f"layers.{layer}"
        attended = m.attention(m.norm(h, f"{name}.attn_norm"), layer)
        h = m.b.add(h, m.norm(attended, f"{name}.post_attn_norm"))
        fed = m.gated_ffn(m.norm(h, f"{name}.ffn_norm"), layer)
        h = m.b.add(h, m.norm(fed, f"{name}.post_ffn_norm"))
    return m.finish(h)
