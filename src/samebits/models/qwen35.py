"""Qwen 3.5 and 3.6, text, dense and with experts: Qwen3-Next, its projections stored one by one; GGUF files tile the
value heads.

| router        | softmax over all, the best, divided by their sum |
| shared expert | one, times a sigmoid of its own                  |
"""

from __future__ import annotations

from dataclasses import replace

from samebits.models import qwen3next as next_
from samebits.models.architecture import Architecture, Weight
from samebits.models.parts import delta_net as delta
from samebits.models.parts import mixture
from samebits.models.parts.decoder import Decoder
from samebits.models.parts.experts import Mixture
from samebits.models.parts.ignored import ON, Ignored, words
from samebits.models.parts.keys import MAX_EXPERTS, REQUIRED, Source, whole

#                            GGUF                         Hugging Face           bounds          where it is absent
MIXTURE_KEYS = next_.MIXTURE_KEYS | {
    "num_experts":    whole("expert_count",               "num_experts",         1, MAX_EXPERTS, 256,
                            gguf_default=REQUIRED, hf_too="num_local_experts"),
    "top_k":          whole("expert_used_count",          "num_experts_per_tok", 1, MAX_EXPERTS, 8,
                            gguf_default=REQUIRED),
}  # fmt: skip
DELTA = (
    Weight("delta.qkv",      "Channels H", "attn_qkv",  "linear_attn.in_proj_qkv"),
    Weight("delta.z",        "Values H",   "attn_gate", "linear_attn.in_proj_z"),
    Weight("delta.b",        "Heads H",    "ssm_beta",  "linear_attn.in_proj_b"),
    Weight("delta.a",        "Heads H",    "ssm_alpha", "linear_attn.in_proj_a"),
)  # fmt: skip


def read(source: Source) -> Decoder:
    """Text has one position for all axes of its rotation, which is then a plain one."""
    return next_.read_hybrid(source, is_tiled=source.is_gguf, read_experts=next_.no_experts)


def read_moe(source: Source) -> Decoder:
    return next_.read_hybrid(source, is_tiled=source.is_gguf, read_experts=_read_experts)


def _read_experts(source: Source) -> Mixture | None:
    return mixture.read_mixture(source, MIXTURE_KEYS, "softmax", has_shared_gate=True)


IGNORED = Ignored(
    hf=words("mamba_ssm_dtype mtp_num_hidden_layers mtp_use_dedicated_embeddings"),
    hf_only={"attn_output_gate": ON},
    hf_whole=words(
        """
        image_token_id language_model_only text_config video_token_id vision_config vision_end_token_id
        vision_start_token_id
        """
    ),
    gguf=words(  # text has one position for all sections; the names behind them are Ollama's
        """
        image_token_id mrope_sections rope.dimension_sections rope.mrope_interleaved rope.mrope_section
        vision_end_token_id vision_start_token_id
        """
    ),
    gguf_only={"norm_top_k_prob": ON, "ssm.v_head_reordered": ON},
    rope=words("mrope_interleaved mrope_section"),
    tensors=(r"(model\.)?visual\..*",),
)
QWEN35 = Architecture(
    "qwen35",
    ("qwen3_5_text", "Qwen3_5ForCausalLM"),
    read,
    next_.TOP,
    next_.LAYER,
    next_.build,
    kinds={"attention": next_.FULL, "recurrence": (*DELTA, *delta.TENSORS), **next_.FFNS},
    hf_whole=("qwen3_5", "model.language_model"),
    ignored=IGNORED,
)
QWEN35MOE = replace(
    QWEN35,
    name="qwen35moe",
    hf=("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"),
    read=read_moe,
    hf_whole=("qwen3_5_moe", "model.language_model"),
)
