"""Granite 4 hybrid, dense and with experts: state spaces, attention without a rotation in some layers, and multipliers.

| router        | the best logits, softmax over those           |
| shared expert | one, added as it is: all there is where dense |
"""

from __future__ import annotations

from typing import Any

from samebits.models.architecture import Architecture, Rows, Weight
from samebits.models.parts import mixture, ssm
from samebits.models.parts import tensors as t
from samebits.models.parts.builder import ModelParts, StepGraph
from samebits.models.parts.decoder import KEYS, Decoder, Layer, activation, read_decoder, rotary_dims
from samebits.models.parts.hybrid import by_layer, layers_of, stated_kinds
from samebits.models.parts.ignored import INITIAL_STEPS, Ignored, words
from samebits.models.parts.keys import (
    MAX_EXPERTS,
    MAX_HEAD_SIZE,
    MAX_HEADS,
    MAX_TAPS,
    MAX_WIDTH,
    REQUIRED,
    Source,
    number,
    whole,
)
from samebits.models.parts.recurrence import Ssm
from samebits.models.parts.rope import ROPE_TABLE, read_rope

#                            GGUF                         Hugging Face                bounds          where absent
MULTIPLIERS = {
    "embed_scale":    number("embedding_scale",           "embedding_multiplier",     1e-6, 1e6, 1.0),
    "residual_scale": number("residual_scale",            "residual_multiplier",      1e-6, 1e6, 1.0),
    "logit_divisor":  number("logit_scale",               "logits_scaling",           1e-6, 1e6, 1.0),
    "attn_scale":     number("attention.scale",           "attention_multiplier",     1e-6, 1e6, 1.0,
                             gguf_default=lambda known: max(known["head_size"], 1) ** -0.5),
}  # fmt: skip
GRANITE_KEYS = KEYS | {
    "num_kv_heads":   whole(None,                         "num_key_value_heads",      1, MAX_HEADS,
                            lambda known: known["num_heads"]),
    "ffn_size":       whole("feed_forward_length",        "shared_intermediate_size", 1, MAX_WIDTH),
} | MULTIPLIERS  # fmt: skip
SSM_KEYS = {
    "num_heads":      whole(None,                         "mamba_n_heads",            1, MAX_HEADS, 128),
    "state_size":     whole(None,                         "mamba_d_state",            1, MAX_HEAD_SIZE, 256),
    "num_groups":     whole(None,                         "mamba_n_groups",           1, MAX_HEADS, 1),
    "num_taps":       whole(None,                         "mamba_d_conv",             2, MAX_TAPS, 4),
}  # fmt: skip
EXPAND = {"expand": whole(None,                           "mamba_expand",             1, MAX_WIDTH, 2)}  # fmt: skip
MIXTURE_KEYS = {
    "num_experts":    whole("expert_count",               "num_local_experts",        0, MAX_EXPERTS, 8,
                            gguf_default=0),
    "top_k":          whole("expert_used_count",          "num_experts_per_tok",      1, MAX_EXPERTS, 2,
                            gguf_default=REQUIRED),
    "expert_size":    whole("feed_forward_length",        "intermediate_size",        1, MAX_WIDTH),
    "shared_size":    whole("expert_shared_feed_forward_length", "shared_intermediate_size", 0, MAX_WIDTH, 0),
}  # fmt: skip
# The rows that Hugging Face's joined tensors hold, in order: of a dense part, of a shared one, of each expert
GATE_UP, SHARED, EACH = ("F", "F"), ("SharedSize", "SharedSize"), ("ExpertSize", "ExpertSize")
FFN = (
    Weight("ffn.gate", "F H", "ffn_gate", "shared_mlp.input_linear", hf_rows=Rows(GATE_UP, (0,))),
    Weight("ffn.up",   "F H", "ffn_up",   "shared_mlp.input_linear", hf_rows=Rows(GATE_UP, (1,))),
    Weight("ffn.down", "H F", "ffn_down", "shared_mlp.output_linear"),
)  # fmt: skip
EXPERTS = (
    Weight("ffn.router",       "Experts H",            "ffn_gate_inp",   "block_sparse_moe.router.layer"),
    Weight("ffn.experts.gate", "Experts ExpertSize H", "ffn_gate_exps",  "block_sparse_moe.input_linear",
           hf_rows=Rows(EACH, (0,), axis=1)),
    Weight("ffn.experts.up",   "Experts ExpertSize H", "ffn_up_exps",    "block_sparse_moe.input_linear",
           hf_rows=Rows(EACH, (1,), axis=1)),
    Weight("ffn.experts.down", "Experts H ExpertSize", "ffn_down_exps",  "block_sparse_moe.output_linear"),
    Weight("ffn.shared.gate",  "SharedSize H",         "ffn_gate_shexp", "shared_mlp.input_linear",
           when="mixture.has_shared", hf_rows=Rows(SHARED, (0,))),
    Weight("ffn.shared.up",    "SharedSize H",         "ffn_up_shexp",   "shared_mlp.input_linear",
           when="mixture.has_shared", hf_rows=Rows(SHARED, (1,))),
    Weight("ffn.shared.down",  "H SharedSize",         "ffn_down_shexp", "shared_mlp.output_linear",
           when="mixture.has_shared"),
)  # fmt: skip
FFNS = {"dense": FFN, "experts": EXPERTS}


def read(source: Source) -> Decoder:
    source.refuse(None, "mamba_proj_bias", "false: biases of projections are not supported")
    values = source.values(GRANITE_KEYS)
    layers = layers_of(_kinds(source, values), ROPE_TABLE if _has_rope(source) else None)
    return read_granite(
        source,
        values,
        layers,
        recurrence=_ssm(source, values["hidden_size"]),
    )


def read_granite(source: Source, values: dict[str, Any], layers: tuple[Layer, ...], **given: Any) -> Decoder:
    """The configuration of layers with or without a rotation, experts and multipliers among the values."""
    attn_scale, residual_scale, divisor = (values.pop(key) for key in ("attn_scale", "residual_scale", "logit_divisor"))
    experts = mixture.read_mixture(source, MIXTURE_KEYS, "chosen", is_normalized=False)
    dims, has_rope = rotary_dims(source, values["head_size"]), any(layer.rope for layer in layers)
    return read_decoder(
        source,
        values,
        layers=mixture.with_experts(layers, experts),
        ropes={ROPE_TABLE: read_rope(source, dims, values["context_len"])} if has_rope else {},
        rope_is_interleaved=source.is_gguf,
        activation=activation(source, "hidden_act", default="silu"),
        query_scalar=attn_scale**-2,
        logit_scale=1.0 / divisor,
        factors={"residual": residual_scale},
        mixture=experts,
        **given,
    )


def _kinds(source: Source, values: dict[str, Any]) -> list[str]:
    """A GGUF file says it by the heads of keys and values, which only layers with attention have."""
    if not source.is_gguf:
        stated = stated_kinds(source, "layer_types", values["num_layers"], key_too="layers_block_type")
        return stated or ["recurrence"] * values["num_layers"]
    heads = by_layer(source, "attention.head_count_kv", values["num_layers"], MAX_HEADS)
    values["num_kv_heads"] = max(*heads, 1)
    return ["attention" if n else "recurrence" for n in heads]


def _ssm(source: Source, hidden_size: int) -> Ssm:
    """The state space. A config.json states the width of all heads, and that of one as a number, as "auto" or not."""
    width = 0 if source.is_gguf else source.values(EXPAND)["expand"] * hidden_size
    keys = SSM_KEYS | {"inner_size": whole(None, None, 1, MAX_WIDTH, width)}
    found = ssm.read_ssm(source, keys, "mamba_conv_bias", **ssm.time_step_limits(source))
    if not source.is_gguf and source.fields.get("mamba_d_head") != "auto":
        stated = source.fields.integer("mamba_d_head", 1, MAX_HEAD_SIZE, found.head_size)
        if stated != found.head_size:
            needed = f"{found.head_size} or auto: {found.num_heads} heads have mamba_expand * hidden_size = {width}"
            raise source.fields.fail("mamba_d_head", stated, needed)
    return found


def _has_rope(source: Source) -> bool:
    if source.is_gguf:
        return bool(source.fields.flag("rope.scaling.finetuned", True))
    kind = source.fields.text("position_embedding_type", "nope")
    if kind not in ("rope", "nope"):
        raise source.fields.fail("position_embedding_type", repr(kind), "rope, nope or nothing")
    return bool(kind == "rope")


def build(m: ModelParts) -> StepGraph:
    """A mixer of its kind and a gated FFN or experts in every layer, each times a factor added to the stream."""
    h = m.embed()
    for i, layer in enumerate(m.config.layers):
        x = m.norm(h, f"layers.{i}.attn_norm")
        mixed = m.attention(x, i) if layer.kind == "attention" else ssm.ssm(m, x, i)
        h = m.b.add(h, m.scaled(mixed, "residual"))
        fed = mixture.feed_forward(m, m.norm(h, f"layers.{i}.ffn_norm"), i)
        h = m.b.add(h, m.scaled(fed, "residual"))
    return m.finish(h)


GRANITEHYBRID = Architecture(
    "granitehybrid",
    ("granitemoehybrid", "GraniteMoeHybridForCausalLM"),
    read,
    t.TOP,
    t.NORMS,
    build,
    kinds={"attention": (*t.ATTENTION, *t.QKV_BIASES, *t.OUT_BIAS), "recurrence": ssm.tensors("mamba"), **FFNS},
    ignored=Ignored(
        hf=INITIAL_STEPS | words("init_method mamba_chunk_size"),
        hf_only={"normalization_function": ("rmsnorm",)},
    ),
)
