"""Mamba-2: state spaces in every layer, no attention, and no feed-forward part."""

from __future__ import annotations

from samebits.models.architecture import Architecture, Weight
from samebits.models.parts import ssm
from samebits.models.parts.builder import ModelParts, StepGraph
from samebits.models.parts.decoder import KEYS, Decoder, activation, read_decoder
from samebits.models.parts.hybrid import layers_of
from samebits.models.parts.ignored import ON, Ignored, words
from samebits.models.parts.keys import (
    MAX_CONTEXT,
    MAX_HEAD_SIZE,
    MAX_HEADS,
    MAX_TAPS,
    REQUIRED,
    Source,
    number,
    whole,
)

#                           GGUF                                 Hugging Face          bounds           absent
MAMBA_KEYS = {key: KEYS[key] for key in ("num_layers", "hidden_size")} | {
    "context_len":    whole("context_length",                    None,                 1, MAX_CONTEXT, 1 << 20),
    "rms_eps":        number("attention.layer_norm_rms_epsilon", "layer_norm_epsilon", 1e-12, 1.0, 1e-5,
                             gguf_default=REQUIRED),
}  # fmt: skip
SSM_KEYS = {
    "num_heads":      whole(None,                                "num_heads",          1, MAX_HEADS, 128),
    "head_size":      whole(None,                                "head_dim",           1, MAX_HEAD_SIZE, 64),
    "state_size":     whole(None,                                "state_size",         1, MAX_HEAD_SIZE, 128),
    "num_groups":     whole(None,                                "n_groups",           1, MAX_HEADS, 8),
    "num_taps":       whole(None,                                "conv_kernel",        2, MAX_TAPS, 4),
}  # fmt: skip
NO_ATTENTION = {"num_heads": 0, "num_kv_heads": 0, "head_size": 0, "ffn_size": 0, "ropes": {}}
TOP = (
    Weight("embed", "V H", "token_embd",  "backbone.embeddings"),
    Weight("norm",  "H",   "output_norm", "backbone.norm_f"),
    Weight("head",  "V H", "output",      "lm_head", when="has_head"),
)  # fmt: skip
NORM = (Weight("attn_norm", "H", "attn_norm", "norm"),)


def read(source: Source) -> Decoder:
    """The norm goes by groups of heads, as models are trained; transformers' own norms a row as a whole."""
    source.refuse(None, "use_bias", "false: biases of projections are not supported")
    activation(source, "hidden_act", default="silu")
    values = source.values(MAMBA_KEYS)
    sizes = ssm.read_ssm(source, SSM_KEYS, "use_conv_bias", **ssm.time_step_limits(source))
    layers = layers_of(["recurrence"] * values["num_layers"], rope=None)
    return read_decoder(source, values | NO_ATTENTION, layers=layers, recurrence=sizes, hf_root="backbone")


def build(m: ModelParts) -> StepGraph:
    h = m.embed()
    for layer in range(m.config.num_layers):
        h = m.b.add(h, ssm.ssm(m, m.norm(h, f"layers.{layer}.attn_norm"), layer))
    return m.finish(h)


LAYER = (*NORM, *ssm.tensors("mixer"))
IGNORED = Ignored(
    hf=words(
        """
        chunk_size expand intermediate_size max_position_embeddings norm_before_gate rescale_prenorm_residual
        residual_in_fp32 time_step_floor time_step_init_scheme time_step_max time_step_min time_step_rank
        time_step_scale
        """
    ),
    hf_only={"rms_norm": ON},
    gguf=words("attention.head_count attention.head_count_kv feed_forward_length"),
)
MAMBA2 = Architecture("mamba2", ("mamba2", "Mamba2ForCausalLM"), read, TOP, LAYER, build, ignored=IGNORED)
