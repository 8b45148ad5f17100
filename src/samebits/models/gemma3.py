"""Gemma 3 (text): Gemma 2 without soft caps, with norms on query and key heads, and a rotation of their own for the
layers in a window, five of every six."""

from __future__ import annotations

import math
from dataclasses import replace

from samebits.models import gemma2
from samebits.models.architecture import Architecture
from samebits.models.parts import tensors as t
from samebits.models.parts.decoder import KEYS, Decoder, Layer, activation, read_decoder, rotary_dims, windows
from samebits.models.parts.keys import MAX_CONTEXT, MAX_LAYERS, Source, number, whole
from samebits.models.parts.rope import ROPE_TABLE, Rope, read_rope

LOCAL_TABLE = "rope_table.local"
WIDE_LAYERS = 62  # of the 27B, as in Gemma 2

#                            GGUF                                 Hugging Face               bounds          absent
GEMMA3_KEYS = KEYS | {
    "attn_soft_cap":  number("attn_logit_softcapping",            "attn_logit_softcapping",  1e-3, 1e6, None,
                             may_be_off=True),
    "final_soft_cap": number("final_logit_softcapping",           "final_logit_softcapping", 1e-3, 1e6, None,
                             may_be_off=True),
    "window":         whole("attention.sliding_window",           "sliding_window",          1, MAX_CONTEXT, 4096,
                            may_be_off=True),
    "period":         whole("attention.sliding_window_pattern",   "sliding_window_pattern",  1, MAX_LAYERS, 6),
    "local_theta":    number("rope.freq_base_swa",                "rope_local_base_freq",    1.0, 1e12, 1e4),
    "query_scalar":   number(None,                                "query_pre_attn_scalar",   1e-3, 1e6, 256.0,
                             gguf_default=lambda known: gemma2.gguf_scalar(known, WIDE_LAYERS)),
}  # fmt: skip


def read(source: Source) -> Decoder:
    source.refuse(None, "use_bidirectional_attention", "false: such a model encodes")
    values = source.values(GEMMA3_KEYS)
    window, period, local_theta = (values.pop(key) for key in ("window", "period", "local_theta"))
    layers = windows(source, window, [(i + 1) % period > 0 for i in range(values["num_layers"])])
    return read_decoder(
        source,
        values,
        ropes=_ropes(source, rotary_dims(source, values["head_size"]), values["context_len"], local_theta),
        layers=tuple(Layer(x.window, LOCAL_TABLE if x.window else ROPE_TABLE) for x in layers),
        activation=activation(source, "hidden_activation", default="gelu_tanh"),
        embed_scale=math.sqrt(values["hidden_size"]),
        is_tied=True,
    )


def _ropes(source: Source, dims: int, context_len: int, local_theta: float) -> dict[str, Rope]:
    """Layers that look back over everything are scaled for long contexts; those in a window need no scaling."""
    stated = source.fields.mapping("rope_parameters")
    if source.is_gguf or not isinstance(stated.get("full_attention"), dict):
        theta = 1e6 if not source.is_gguf and not source.fields.has("rope_theta") else None
        rope = read_rope(source, dims, context_len)
        rope = rope if theta is None else replace(rope, theta=theta)
        return {ROPE_TABLE: rope, LOCAL_TABLE: Rope(local_theta, dims)}
    kinds = {ROPE_TABLE: "full_attention", LOCAL_TABLE: "sliding_attention"}
    return {name: read_rope(source, dims, context_len, stated.mapping(kind)) for name, kind in kinds.items()}


LAYER = (*gemma2.NORMS, *t.ATTENTION, *t.QKV_BIASES, *t.OUT_BIAS, *gemma2.less_one(t.HEAD_NORMS), *t.FFN)
GEMMA3 = Architecture(
    "gemma3", ("gemma3_text", "Gemma3ForCausalLM"), read, gemma2.TOP, LAYER, gemma2.build, ignored=gemma2.IGNORED
)
