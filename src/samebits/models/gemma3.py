"""Gemma 3 (text): Gemma 2 without soft caps, with norms on query and key heads, and a rotation of their own for the
layers in a window, five of every six."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from samebits.loaders.fields import Fields, shown
from samebits.models import gemma2
from samebits.models.architecture import Architecture
from samebits.models.parts import tensors as t
from samebits.models.parts.decoder import (
    KEYS,
    LAYER_TYPES,
    Decoder,
    Layer,
    activation,
    read_decoder,
    rotary_dims,
    windows,
)
from samebits.models.parts.keys import MAX_CONTEXT, MAX_LAYERS, Source, number, whole
from samebits.models.parts.rope import ROPE_TABLE, Rope, read_layer_rope, read_rope

LOCAL_TABLE = "rope_table.local"
GLOBAL_THETA = 1e6  # of layers without a window, where a config.json states none
WIDE_LAYERS = 62  # of the 27B, as in Gemma 2
PATTERN = "attention.sliding_window_pattern"
PLAIN = {"rope_type": "default"}  # what a `rope_scaling` changes, as in transformers

#                            GGUF                                 Hugging Face               bounds          absent
GEMMA3_KEYS = KEYS | {
    "attn_soft_cap":  number("attn_logit_softcapping",            "attn_logit_softcapping",  1e-3, 1e6, None,
                             may_be_off=True),
    "final_soft_cap": number("final_logit_softcapping",           "final_logit_softcapping", 1e-3, 1e6, None,
                             may_be_off=True),
    "window":         whole("attention.sliding_window",           "sliding_window",          1, MAX_CONTEXT, 4096,
                            may_be_off=True),
    "period":         whole(PATTERN,                              "sliding_window_pattern",  1, MAX_LAYERS, 6),
    "local_theta":    number("rope.freq_base_swa",                "rope_local_base_freq",    1.0, 1e12, 1e4),
    "query_scalar":   number(None,                                "query_pre_attn_scalar",   1e-3, 1e6, 256.0,
                             gguf_default=lambda known: gemma2.gguf_scalar(known, WIDE_LAYERS)),
}  # fmt: skip


def read(source: Source) -> Decoder:
    source.refuse(None, "use_bidirectional_attention", "false: such a model encodes")
    listed = _listed(source)
    values = source.values({key: how for key, how in GEMMA3_KEYS.items() if listed is None or key != "period"})
    window, local_theta, num_layers = values.pop("window"), values.pop("local_theta"), values["num_layers"]
    if listed is None:
        period = values.pop("period")
        listed = [(i + 1) % period > 0 for i in range(num_layers)]
    if len(listed) != num_layers:
        raise source.fields.fail(PATTERN, f"a list of {len(listed)}", f"one of {num_layers}, or a number of layers")
    layers = windows(source, window, listed)
    return read_decoder(
        source,
        values,
        ropes=_ropes(source, rotary_dims(source, values["head_size"]), values["context_len"], local_theta),
        layers=tuple(Layer(x.window, LOCAL_TABLE if x.window else ROPE_TABLE) for x in layers),
        activation=activation(source, "hidden_activation", default="gelu_tanh"),
        embed_scale=math.sqrt(values["hidden_size"]),
        is_tied=True,
    )


def _listed(source: Source) -> list[bool] | None:
    """Return which layers have a window where a GGUF file lists them, as Ollama's do; else None."""
    stated = source.fields.get(PATTERN) if source.is_gguf else None
    return stated.tolist() if isinstance(stated, np.ndarray) and stated.dtype == np.bool_ else None


def _gguf_ropes(source: Source, dims: int, context_len: int, local_theta: float) -> dict[str, Rope]:
    """Return the rotations of a GGUF file, whose bases Ollama's files state under names of their own."""
    full, fields = read_rope(source, dims, context_len), source.fields
    thetas = {"rope.freq_base": full.theta, "rope.freq_base_swa": local_theta}
    for key, own in (("rope.freq_base", "rope.global.freq_base"), ("rope.freq_base_swa", "rope.local.freq_base")):
        theta = fields.number(own, 1.0, 1e12, thetas[key])
        if fields.has(key) and theta != thetas[key]:
            raise fields.fail(own, theta, f"{thetas[key]:g} as in {key}")
        thetas[key] = theta
    return {
        ROPE_TABLE: replace(full, theta=thetas["rope.freq_base"]),
        LOCAL_TABLE: Rope(thetas["rope.freq_base_swa"], dims),
    }


def _ropes(source: Source, dims: int, context_len: int, local_theta: float) -> dict[str, Rope]:
    """Layers that look back over everything are scaled for long contexts; those in a window need no scaling.

    A config.json has an object for each of the two in `rope_parameters`; either may be absent. The older `rope_scaling`
    is about the first, and its keys go before that object's.
    """
    if source.is_gguf:
        return _gguf_ropes(source, dims, context_len, local_theta)
    fields = source.fields
    stated, older = fields.mapping("rope_parameters"), fields.mapping("rope_scaling")
    if flat := stated.values.keys() - set(LAYER_TYPES):
        raise stated.fail(min(flat), "a key for all layers", f"keys within {' and '.join(LAYER_TYPES)}")
    full, sliding = stated.mapping("full_attention"), stated.mapping("sliding_attention")
    newer = full.values if fields.has("rope_parameters") else PLAIN
    both = Fields({**newer, **older.values}, older.where if older.values else full.where)
    if older.has("type") and both.has("rope_type") and older.get("type") != both.get("rope_type"):
        raise older.fail("type", shown(older.get("type")), f"the same as rope_type, {shown(both.get('rope_type'))}")
    theta = fields.number("rope_theta", 1.0, 1e12, GLOBAL_THETA)
    return {
        ROPE_TABLE: read_layer_rope(both, dims, context_len, theta),
        LOCAL_TABLE: read_layer_rope(sliding, dims, context_len, local_theta),
    }


LAYER = (*gemma2.NORMS, *t.ATTENTION, *t.QKV_BIASES, *t.OUT_BIAS, *gemma2.less_one(t.HEAD_NORMS), *t.FFN)
GEMMA3 = Architecture(
    "gemma3", ("gemma3_text", "Gemma3ForCausalLM"), read, gemma2.TOP, LAYER, gemma2.build, ignored=gemma2.IGNORED
)
