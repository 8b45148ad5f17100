"""Granite 4 hybrid, dense: state spaces, attention without a rotation in some layers, and multipliers."""

from __future__ import annotations

from typing import Any

from samebits.models.architecture import Architecture, Rows, Weight
from samebits.models.parts import ssm
from samebits.models.parts import tensors as t
from samebits.models.parts.builder import ModelParts, StepGraph
from samebits.models.parts.decoder import KEYS, Decoder, activation, read_decoder, rotary_dims
from samebits.models.parts.hybrid import by_layer, layers_of, stated_kinds
from samebits.models.parts.keys import MAX_HEAD_SIZE, MAX_HEADS, MAX_TAPS, MAX_WIDTH, Source, number, whole
from samebits.models.parts.rope import ROPE_TABLE, read_rope

#                            GGUF                         Hugging Face                bounds          where absent
GRANITE_KEYS = KEYS | {
    "num_kv_heads":   whole(None,                         "num_key_value_heads",      1, MAX_HEADS,
                            lambda known: known["num_heads"]),
    "ffn_size":       whole("feed_forward_length",        "shared_intermediate_size", 1, MAX_WIDTH),
    "embed_scale":    number("embedding_scale",           "embedding_multiplier",     1e-6, 1e6, 1.0),
    "residual_scale": number("residual_scale",            "residual_multiplier",      1e-6, 1e6, 1.0),
    "logit_divisor":  number("logit_scale",               "logits_scaling",           1e-6, 1e6, 1.0),
    "attn_scale":     number("attention.scale",           "attention_multiplier",     1e-6, 1e6, 1.0,
                             gguf_default=lambda known: max(known["head_size"], 1) ** -0.5),
}  # fmt: skip
SSM_KEYS = {
    "num_heads":      whole(None,                         "mamba_n_heads",            1, MAX_HEADS, 128),
    "head_size":      whole(None,                         "mamba_d_head",             1, MAX_HEAD_SIZE),
    "state_size":     whole(None,                         "mamba_d_state",            1, MAX_HEAD_SIZE, 256),
    "num_groups":     whole(None,                         "mamba_n_groups",           1, MAX_HEADS, 1),
    "num_taps":       whole(None,                         "mamba_d_conv",             2, MAX_TAPS, 4),
}  # fmt: skip
NO_EXPERTS = "0: mixtures of experts are not supported"
GATE_UP = ("F", "F")  # the rows that Hugging Face's joined tensor holds, in order
FFN = (
    Weight("ffn.gate", "F H", "ffn_gate", "shared_mlp.input_linear", hf_rows=Rows(GATE_UP, (0,))),
    Weight("ffn.up",   "F H", "ffn_up",   "shared_mlp.input_linear", hf_rows=Rows(GATE_UP, (1,))),
    Weight("ffn.down", "H F", "ffn_down", "shared_mlp.output_linear"),
)  # fmt: skip


def read(source: Source) -> Decoder:
    if not source.is_gguf and (num_experts := source.fields.integer("num_local_experts", 0, 1 << 16, 8)):
        raise source.fields.fail("num_local_experts", num_experts, NO_EXPERTS)
    source.refuse(None, "mamba_proj_bias", "false: biases of projections are not supported")
    values = source.values(GRANITE_KEYS)
    attn_scale, residual_scale, divisor = (values.pop(key) for key in ("attn_scale", "residual_scale", "logit_divisor"))
    kinds, has_rope = _kinds(source, values), _has_rope(source)
    dims = rotary_dims(source, values["head_size"])
    return read_decoder(
        source,
        values,
        layers=layers_of(kinds, ROPE_TABLE if has_rope else None),
        ropes={ROPE_TABLE: read_rope(source, dims, values["context_len"])} if has_rope else {},
        rope_is_interleaved=source.is_gguf,
        activation=activation(source, "hidden_act", default="silu"),
        query_scalar=attn_scale**-2,
        logit_scale=1.0 / divisor,
        factors={"residual": residual_scale},
        recurrence=ssm.read_ssm(source, SSM_KEYS, "mamba_conv_bias", **ssm.time_step_limits(source)),
    )


def _kinds(source: Source, values: dict[str, Any]) -> list[str]:
    """A GGUF file says it by the heads of keys and values, which only layers with attention have."""
    if not source.is_gguf:
        stated = stated_kinds(source, "layer_types", values["num_layers"])
        return stated or ["recurrence"] * values["num_layers"]
    heads = by_layer(source, "attention.head_count_kv", values["num_layers"], MAX_HEADS)
    values["num_kv_heads"] = max(*heads, 1)
    return ["attention" if n else "recurrence" for n in heads]


def _has_rope(source: Source) -> bool:
    if source.is_gguf:
        return bool(source.fields.flag("rope.scaling.finetuned", True))
    kind = source.fields.text("position_embedding_type", "nope")
    if kind not in ("rope", "nope"):
        raise source.fields.fail("position_embedding_type", repr(kind), "rope, nope or nothing")
    return bool(kind == "rope")


def build(m: ModelParts) -> StepGraph:
    """A mixer of its kind and a gated FFN in every layer, each times a factor added to the residual stream."""
    h = m.embed()
    for i, layer in enumerate(m.config.layers):
        x = m.norm(h, f"layers.{i}.attn_norm")
        mixed = m.attention(x, i) if layer.kind == "attention" else ssm.ssm(m, x, i)
        h = m.b.add(h, m.scaled(mixed, "residual"))
        h = m.b.add(h, m.scaled(m.gated_ffn(m.norm(h, f"layers.{i}.ffn_norm"), i), "residual"))
    return m.finish(h)


GRANITEHYBRID = Architecture(
    "granitehybrid",
    ("granitemoehybrid", "GraniteMoeHybridForCausalLM"),
    read,
    t.TOP,
    (*t.NORMS, *FFN),
    build,
    kinds={"attention": (*t.ATTENTION, *t.QKV_BIASES, *t.OUT_BIAS), "recurrence": ssm.tensors("mamba")},
)
