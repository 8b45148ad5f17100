"""Architecture and hyperparameters from a GGUF file's metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from samebits.core.protocols import Hyperparameters, RopeScaling
from samebits.loaders.fields import Fields
from samebits.loaders.gguf import GgufFile
from samebits.loaders.limits import MAX_CONTEXT, MAX_HEAD_SIZE, MAX_HEADS, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH, checked
from samebits.loaders.naming import ARCHITECTURES
from samebits.loaders.source import TensorEntry
from samebits.loaders.texts import Texts

GEMMA2_27B_LAYERS = 46  # the one Gemma 2 whose query scalar is not its head size; GGUF does not store it


def read_gguf_config(file: GgufFile) -> tuple[str, Hyperparameters]:
    """The architecture's name and the hyperparameters; BadInput for a model that is not ours."""
    general = Fields(file.metadata, str(file.path))
    if general.integer("split.count", 0, 65535, 0) > 1:
        raise general.fail("split.count", general.get("split.count"), "a model in one file: merge its parts first")
    architecture = general.text("general.architecture")
    if architecture not in ARCHITECTURES:
        raise general.fail("general.architecture", repr(architecture), f"one of {', '.join(ARCHITECTURES)}")
    fields = Fields(file.metadata, str(file.path), f"{architecture}.")
    if fields.integer("expert_count", 0, 1 << 16, 0):
        raise fields.fail("expert_count", fields.get("expert_count"), "0: mixtures of experts are not supported")
    return architecture, _hyperparameters(architecture, fields, file)


def _hyperparameters(architecture: str, fields: Fields, file: GgufFile) -> Hyperparameters:
    tensors, is_gemma2 = file.tensors, architecture == "gemma2"
    num_layers = fields.integer("block_count", 1, MAX_LAYERS)
    hidden_size = fields.integer("embedding_length", 1, MAX_WIDTH)
    num_heads = fields.integer("attention.head_count", 1, MAX_HEADS)
    num_kv_heads = fields.integer("attention.head_count_kv", 1, MAX_HEADS, num_heads)
    head_size = fields.integer("attention.key_length", 1, MAX_HEAD_SIZE, hidden_size // num_heads)
    if fields.integer("attention.value_length", 1, MAX_HEAD_SIZE, head_size) != head_size:
        raise fields.fail("attention.value_length", fields.get("attention.value_length"), f"key_length, {head_size}")
    rotary_dims = fields.integer("rope.dimension_count", 2, MAX_HEAD_SIZE, head_size)
    context_len = fields.integer("context_length", 1, MAX_CONTEXT)
    window = fields.integer("attention.sliding_window", 0, MAX_CONTEXT, 4096 if is_gemma2 else None) or None
    is_wide_gemma2 = is_gemma2 and num_layers == GEMMA2_27B_LAYERS
    return checked(
        Hyperparameters(
            num_layers=num_layers,
            hidden_size=hidden_size,
            ffn_size=fields.integer("feed_forward_length", 1, MAX_WIDTH),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_size=head_size,
            vocab_size=_vocab_size(fields, file.metadata, tensors),
            context_len=context_len,
            rms_eps=fields.number("attention.layer_norm_rms_epsilon", 1e-12, 1.0),
            rope_theta=fields.number("rope.freq_base", 1.0, 1e12, 10000.0),
            rotary_dims=rotary_dims,
            rope_is_interleaved=architecture == "llama",
            query_scalar=float(hidden_size // num_heads if is_wide_gemma2 else head_size),
            rope_scaling=_rope_scaling(fields, "rope_freqs.weight" in tensors, context_len),
            sliding_window=window,
            sliding_layers=tuple(not is_gemma2 or i % 2 == 0 for i in range(num_layers)) if window else (),
            attn_soft_cap=fields.number("attn_logit_softcapping", 1e-3, 1e6, 50.0 if is_gemma2 else None),
            final_soft_cap=fields.number("final_logit_softcapping", 1e-3, 1e6, 30.0 if is_gemma2 else None),
            tie_embeddings="output.weight" not in tensors,
            embed_scale=math.sqrt(hidden_size) if is_gemma2 else 1.0,
            activation="gelu_tanh" if is_gemma2 else "silu",
            has_qkv_bias=architecture == "qwen2" or "blk.0.attn_q.bias" in tensors,
            has_out_bias="blk.0.attn_output.bias" in tensors,
            has_qk_norm=architecture == "qwen3",
            has_post_norms=is_gemma2,
        ),
        str(file.path),
    )


def _vocab_size(fields: Fields, metadata: Mapping[str, Any], tensors: dict[str, TensorEntry]) -> int:
    """The rows of the embedding, which is the truth; else what the metadata says."""
    if (embed := tensors.get("token_embd.weight")) is not None and len(embed.shape) == 2:
        return embed.shape[0]
    tokens = metadata.get("tokenizer.ggml.tokens")
    num_tokens = len(tokens) if isinstance(tokens, Texts) and tokens else None
    return int(fields.integer("vocab_size", 1, MAX_VOCAB, *([num_tokens] if num_tokens else [])))


def _rope_scaling(fields: Fields, has_factors: bool, context_len: int) -> RopeScaling:
    kind = fields.text("rope.scaling.type", "linear" if fields.has("rope.scale_linear") else "none")
    if kind not in ("none", "linear", "yarn"):
        raise fields.fail("rope.scaling.type", repr(kind), "none, linear or yarn")
    if has_factors:
        if kind != "none":
            raise fields.fail("rope.scaling.type", repr(kind), "none beside the tensor rope_freqs.weight")
        return RopeScaling("factors")
    factor = fields.number("rope.scaling.factor", 1e-3, 1e4, fields.number("rope.scale_linear", 1e-3, 1e4, 1.0))
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return RopeScaling()
    if kind == "yarn" and fields.number("rope.scaling.attn_factor", 1e-3, 1e6, 1.0) != 1.0:
        raise fields.fail("rope.scaling.attn_factor", fields.get("rope.scaling.attn_factor"), "1, the usual one")
    return RopeScaling(
        kind,
        factor,
        original_context_len=fields.integer("rope.scaling.original_context_length", 1, MAX_CONTEXT, context_len),
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32.0),
        beta_slow=fields.number("rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1.0),
    )
