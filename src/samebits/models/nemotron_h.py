"""Nemotron-H, dense: layers of one block each, a state space, attention without a rotation, or an FFN."""

from __future__ import annotations

from typing import Any

from samebits.graph import Value
from samebits.models import mamba2
from samebits.models.architecture import Architecture, Weight
from samebits.models.parts import ssm
from samebits.models.parts.builder import ModelParts, StepGraph
from samebits.models.parts.decoder import KEYS, Decoder, read_decoder
from samebits.models.parts.hybrid import KINDS, by_layer, layers_of, stated_kinds
from samebits.models.parts.keys import (
    MAX_HEAD_SIZE,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_TAPS,
    MAX_WIDTH,
    REQUIRED,
    Source,
    number,
    whole,
)

PATTERN = {"M": "recurrence", "*": "attention", "-": "ffn"}
TO_STEP = 2.0**60  # times any number but 0, which is 2^-50 at least, far beyond where a sigmoid is 0 or 1

#                            GGUF                                Hugging Face          bounds           absent
NEMOTRON_KEYS = {
    "old_head_size":  whole(None,                                "attention_head_dim", 1, MAX_HEAD_SIZE, 128),
} | KEYS | {
    "num_layers":     whole("block_count",                       "num_hidden_layers",  1, MAX_LAYERS, None,
                            gguf_default=REQUIRED),
    "num_kv_heads":   whole(None,                                "num_key_value_heads", 1, MAX_HEADS, 8,
                            gguf_default=1),
    "ffn_size":       whole(None,                                "intermediate_size",  1, MAX_WIDTH, 21504,
                            gguf_default=1),
    "head_size":      whole("attention.key_length",              "head_dim",           1, MAX_HEAD_SIZE,
                            lambda known: known["old_head_size"]),
    "rms_eps":        number("attention.layer_norm_rms_epsilon", "layer_norm_epsilon", 1e-12, 1.0, 1e-5,
                             gguf_default=REQUIRED),
}  # fmt: skip
SSM_KEYS = {
    "num_heads":      whole(None,                                "mamba_num_heads",    1, MAX_HEADS, 128),
    "head_size":      whole(None,                                "mamba_head_dim",     1, MAX_HEAD_SIZE, 64),
    "state_size":     whole(None,                                "ssm_state_size",     1, MAX_HEAD_SIZE, 128),
    "num_groups":     whole(None,                                "n_groups",           1, MAX_HEADS, 8),
    "num_taps":       whole(None,                                "conv_kernel",        2, MAX_TAPS, 4),
    "dt_min":         number(None,                               "time_step_min",      0.0, 1e6, 1e-3,
                             gguf_default=0.0),
}  # fmt: skip
ATTENTION = (
    Weight("attn.q",   "Q H", "attn_q",      "mixer.q_proj"),
    Weight("attn.k",   "K H", "attn_k",      "mixer.k_proj"),
    Weight("attn.v",   "K H", "attn_v",      "mixer.v_proj"),
    Weight("attn.o",   "H Q", "attn_output", "mixer.o_proj"),
)  # fmt: skip
FFN = (
    Weight("ffn.up",   "F H", "ffn_up",      "mixer.up_proj"),
    Weight("ffn.down", "H F", "ffn_down",    "mixer.down_proj"),
)  # fmt: skip


def read(source: Source) -> Decoder:
    for key in ("use_bias", "mlp_bias", "attention_bias"):
        source.refuse(None, key, "false: biases of projections are not supported")
    if (act := source.fields.get("mlp_hidden_act")) not in (None, "relu2"):
        raise source.fields.fail("mlp_hidden_act", act, "relu2")
    values = source.values(NEMOTRON_KEYS)
    values.pop("old_head_size")
    kinds = _gguf_kinds(source, values) if source.is_gguf else _hf_kinds(source, values)
    return read_decoder(
        source,
        values,
        layers=layers_of(kinds, rope=None),
        ropes={},
        hf_root="backbone",
        recurrence=ssm.read_ssm(source, SSM_KEYS, "use_conv_bias"),
    )


def _gguf_kinds(source: Source, values: dict[str, Any]) -> list[str]:
    """Layers with heads of keys attend, those with an FFN have nothing else, the others are state spaces."""
    num_layers = values["num_layers"]
    heads = by_layer(source, "attention.head_count_kv", num_layers, MAX_HEADS)
    sizes = by_layer(source, "feed_forward_length", num_layers, MAX_WIDTH)
    values["num_kv_heads"], values["ffn_size"] = max(*heads, 1), max(*sizes, 1)
    return ["attention" if n else "ffn" if size else "recurrence" for n, size in zip(heads, sizes, strict=True)]


def _hf_kinds(source: Source, values: dict[str, Any]) -> list[str]:
    """A list of kinds, or a text with a letter for each layer; it counts the layers."""
    fields, pattern = source.fields, source.fields.get("hybrid_override_pattern")
    if isinstance(types := fields.get("layers_block_type"), list):
        values["num_layers"] = min(len(types), MAX_LAYERS)
        if kinds := stated_kinds(source, "layers_block_type", values["num_layers"], KINDS | {"mlp": "ffn"}):
            return kinds
    if not isinstance(pattern, str) or not 1 <= len(pattern) <= MAX_LAYERS or set(pattern) - PATTERN.keys():
        raise fields.fail("hybrid_override_pattern", pattern, f"letters among {' '.join(PATTERN)}, one for each layer")
    values["num_layers"] = len(pattern)
    return [PATTERN[letter] for letter in pattern]


def build(m: ModelParts) -> StepGraph:
    """One block in every layer, added to the residual stream."""
    h, blocks = m.embed(), {"recurrence": ssm.ssm, "attention": ModelParts.attention, "ffn": _ffn}
    for i, layer in enumerate(m.config.layers):
        h = m.b.add(h, blocks[layer.kind](m, m.norm(h, f"layers.{i}.attn_norm"), i))
    return m.finish(h)


def _ffn(m: ModelParts, x: Value, layer: int) -> Value:
    """down(relu(up(x))^2); a relu is the number times a sigmoid that is 0 or 1."""
    b, name = m.b, f"layers.{layer}.ffn"
    up = m.linear(x, f"{name}.up")
    relu = b.sigmoid_and_mul(up, b.scale(up, factor=TO_STEP))
    return m.linear(b.mul(relu, relu), f"{name}.down")


NEMOTRON_H = Architecture(
    "nemotron_h",
    ("nemotron_h", "NemotronHForCausalLM"),
    read,
    mamba2.TOP,
    mamba2.NORM,
    build,
    kinds={"attention": ATTENTION, "ffn": FFN, "recurrence": ssm.tensors("mixer")},
)
