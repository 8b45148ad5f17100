"""Gemma 2: norms on both sides of each block, soft caps, every other layer in a sliding window."""

from __future__ import annotations

import math

from samebits.graph import Graph
from samebits.models.parts import ModelParts


def build(m: ModelParts) -> Graph:
    """Embeddings are scaled by sqrt(hidden size), rounded to float32."""
    hp = m.hp
    h = m.b.scale(m.embed(), factor=math.sqrt(hp.hidden_size))
    for layer in range(hp.num_layers):
        name = f"layers.{layer}"
        attended = m.attention(
            m.norm(h, f"{name}.attn_norm"),
            layer,
            sm_scale=hp.attention_scale,
            logits_soft_cap=hp.attention_soft_cap,
            window_left=hp.window_left(layer),
        )
        h = m.b.add(h, m.norm(attended, f"{name}.post_attn_norm"))
        fed = m.gated_ffn(m.norm(h, f"{name}.ffn_norm"), layer, "gelu_and_mul")
        h = m.b.add(h, m.norm(fed, f"{name}.post_ffn_norm"))
    return m.finish(h)
