"""Gemma 2: norms on both sides of each block, soft caps, every other layer in a sliding window."""

from __future__ import annotations

import math
from dataclasses import replace

from samebits.models.architecture import Architecture, Weight
from samebits.models.parts import tensors as t
from samebits.models.parts.builder import ModelParts, StepGraph
from samebits.models.parts.decoder import KEYS, Decoder, activation, read_decoder, windows
from samebits.models.parts.ignored import Ignored, words
from samebits.models.parts.keys import MAX_CONTEXT, Source, number, whole

WIDE_LAYERS = 46  # of the 27B, the one Gemma 2 whose query scalar is not its head size; GGUF does not store it

#                            GGUF                        Hugging Face                bounds       where it is absent
GEMMA2_KEYS = KEYS | {
    "attn_soft_cap":  number("attn_logit_softcapping",   "attn_logit_softcapping",   1e-3, 1e6, 50.0, may_be_off=True),
    "final_soft_cap": number("final_logit_softcapping",  "final_logit_softcapping",  1e-3, 1e6, 30.0, may_be_off=True),
    "window":         whole("attention.sliding_window",  "sliding_window",           1, MAX_CONTEXT, 4096,
                            may_be_off=True),
    "query_scalar":   number(None,                       "query_pre_attn_scalar",    1e-3, 1e6, 256.0,
                             gguf_default=lambda known: gguf_scalar(known, WIDE_LAYERS)),
}  # fmt: skip
NORMS = (  # Hugging Face stores them less 1
    Weight("attn_norm",      "H", "attn_norm",           "input_layernorm",            hf_plus=1.0),
    Weight("post_attn_norm", "H", "post_attention_norm", "post_attention_layernorm",   hf_plus=1.0),
    Weight("ffn_norm",       "H", "ffn_norm",            "pre_feedforward_layernorm",  hf_plus=1.0),
    Weight("post_ffn_norm",  "H", "post_ffw_norm",       "post_feedforward_layernorm", hf_plus=1.0),
)  # fmt: skip


def gguf_scalar(known: dict[str, int], wide_layers: int) -> float:
    """The head size, or in the one model of so many layers the width by the number of heads."""
    is_wide = known["num_layers"] == wide_layers
    return float(known["hidden_size"] // known["num_heads"] if is_wide else known["head_size"])


def read(source: Source) -> Decoder:
    values = source.values(GEMMA2_KEYS)
    layers = windows(source, values.pop("window"), [i % 2 == 0 for i in range(values["num_layers"])])
    return read_decoder(
        source,
        values,
        layers=layers,
        activation=activation(source, "hidden_activation", default="gelu_tanh"),
        embed_scale=math.sqrt(values["hidden_size"]),
        is_tied=True,
    )


def build(m: ModelParts) -> StepGraph:
    """What a block gives is normed before it is added."""
    h = m.embed()
    for layer in range(m.config.num_layers):
        name = f"layers.{layer}"
        attended = m.attention(m.norm(h, f"{name}.attn_norm"), layer)
        h = m.b.add(h, m.norm(attended, f"{name}.post_attn_norm"))
        fed = m.gated_ffn(m.norm(h, f"{name}.ffn_norm"), layer)
        h = m.b.add(h, m.norm(fed, f"{name}.post_ffn_norm"))
    return m.finish(h)


def less_one(weights: tuple[Weight, ...]) -> tuple[Weight, ...]:
    """The same tensors, the norms among them stored less 1 by Hugging Face."""
    return tuple(replace(w, hf_plus=1.0) if w.name.endswith("norm") else w for w in weights)


TOP = less_one(t.TOP)
LAYER = (*NORMS, *t.ATTENTION, *t.QKV_BIASES, *t.OUT_BIAS, *t.FFN)
IGNORED = Ignored(hf=words("_sliding_window_pattern hidden_act sliding_window_size"))
GEMMA2 = Architecture("gemma2", ("gemma2", "Gemma2ForCausalLM"), read, TOP, LAYER, build, ignored=IGNORED)
