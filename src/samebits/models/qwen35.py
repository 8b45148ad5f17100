"""Qwen 3.5 and 3.6, text: Qwen3-Next, dense, its projections stored one by one; GGUF files tile the value heads."""

from __future__ import annotations

from samebits.models import qwen3next as next_
from samebits.models.architecture import Architecture, Weight
from samebits.models.parts import delta_net as delta
from samebits.models.parts.decoder import Decoder
from samebits.models.parts.keys import Source

DELTA = (
    Weight("delta.qkv",      "Channels H", "attn_qkv",  "linear_attn.in_proj_qkv"),
    Weight("delta.z",        "Values H",   "attn_gate", "linear_attn.in_proj_z"),
    Weight("delta.b",        "Heads H",    "ssm_beta",  "linear_attn.in_proj_b"),
    Weight("delta.a",        "Heads H",    "ssm_alpha", "linear_attn.in_proj_a"),
)  # fmt: skip


def read(source: Source) -> Decoder:
    """Text has one position for all axes of its rotation, which is then a plain one."""
    return next_.read_hybrid(source, is_tiled=source.is_gguf)


QWEN35 = Architecture(
    "qwen35",
    ("qwen3_5_text", "Qwen3_5ForCausalLM"),
    read,
    next_.TOP,
    next_.LAYER,
    next_.build,
    kinds={"attention": next_.FULL, "recurrence": (*DELTA, *delta.TENSORS)},
    hf_whole=("qwen3_5", "model.language_model"),
)
