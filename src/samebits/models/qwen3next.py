"""Qwen3-Next with dense feed-forward parts: gated delta nets, and attention with a gate in every fourth layer."""

from __future__ import annotations

from samebits.loaders.fields import shown
from samebits.models.architecture import Architecture, Rows, Weight
from samebits.models.gemma2 import less_one
from samebits.models.parts import delta_net as delta
from samebits.models.parts import tensors as t
from samebits.models.parts.builder import ModelParts, StepGraph
from samebits.models.parts.decoder import KEYS, Decoder, activation, read_decoder, rotary_dims
from samebits.models.parts.hybrid import layers_of, stated_kinds
from samebits.models.parts.keys import MAX_HEAD_SIZE, MAX_LAYERS, Source, whole
from samebits.models.parts.rope import ROPE_TABLE, read_rope

ROTARY_SHARE = 0.25  # of a head, where a config.json does not say

#                            GGUF                      Hugging Face               bounds           where it is absent
NEXT_KEYS = KEYS | {
    "head_size":      whole("attention.key_length",    "head_dim",                1, MAX_HEAD_SIZE, 256),
    "period":         whole("full_attention_interval", "full_attention_interval", 1, MAX_LAYERS, 4),
    "num_more":       whole("nextn_predict_layers",    None,                      0, MAX_LAYERS, 0),
}  # fmt: skip
NORMS = (
    Weight("attn_norm",      "H",          "attn_norm",           "input_layernorm"),
    Weight("ffn_norm",       "H",          "post_attention_norm", "post_attention_layernorm"),
)  # fmt: skip
Q, GATE = (Rows(("D", "D"), (part,), groups="A") for part in (0, 1))  # by heads: a query, its gate
ATTENTION = (
    Weight("attn.q",         "Q H",        "attn_q",              "self_attn.q_proj", rows=Q),
    Weight("attn.gate",      "Q H",        "attn_q",              "self_attn.q_proj", rows=GATE),
    Weight("attn.k",         "K H",        "attn_k",              "self_attn.k_proj"),
    Weight("attn.v",         "K H",        "attn_v",              "self_attn.v_proj"),
    Weight("attn.o",         "H Q",        "attn_output",         "self_attn.o_proj"),
)  # fmt: skip
QKVZ = ("KeySize", "KeySize", "HeadsEach*ValueSize", "HeadsEach*ValueSize")  # of each key head, in Hugging Face's files
BA = ("HeadsEach", "HeadsEach")  # of each key head, in both kinds of files
DELTA = (
    Weight("delta.qkv",      "Channels H", "attn_qkv",            "linear_attn.in_proj_qkvz",
           hf_rows=Rows(QKVZ, (0, 1, 2), groups="KeyHeads")),
    Weight("delta.z",        "Values H",   "attn_gate",           "linear_attn.in_proj_qkvz",
           hf_rows=Rows(QKVZ, (3,), groups="KeyHeads")),
    Weight("delta.b",        "Heads H",    "ssm_ba",              "linear_attn.in_proj_ba",
           rows=Rows(BA, (0,), groups="KeyHeads")),
    Weight("delta.a",        "Heads H",    "ssm_ba",              "linear_attn.in_proj_ba",
           rows=Rows(BA, (1,), groups="KeyHeads")),
)  # fmt: skip


def read(source: Source) -> Decoder:
    _refuse_mixtures(source)
    return read_hybrid(source, is_tiled=False)


def read_hybrid(source: Source, is_tiled: bool) -> Decoder:
    """The layers of a GGUF file beyond the model's own, which predict more tokens, are left out."""
    source.refuse(None, "attention_bias", "false: biases of projections are not supported")
    values = source.values(NEXT_KEYS)
    values["num_layers"] -= values.pop("num_more")
    if values["num_layers"] < 1:
        raise source.fail("layers", values["num_layers"], "at least 1 besides those that predict more tokens")
    period, num_layers = values.pop("period"), values["num_layers"]
    kinds = stated_kinds(source, "layer_types", num_layers)
    usual = ["recurrence" if (i + 1) % period else "attention" for i in range(num_layers)]
    dims = rotary_dims(source, values["head_size"], ROTARY_SHARE)
    return read_decoder(
        source,
        values,
        layers=layers_of(kinds or usual, ROPE_TABLE),
        ropes={ROPE_TABLE: read_rope(source, dims, values["context_len"])},
        activation=activation(source, "hidden_act", default="silu"),
        recurrence=delta.read_delta_net(source, is_tiled),
        has_qkv_bias=False,
        has_out_bias=False,
    )


def _refuse_mixtures(source: Source) -> None:
    """A layer of a config.json is sparse where it has experts, is not listed as dense, and its turn comes."""
    fields, needed = source.fields, "0, or every layer in mlp_only_layers: mixtures of experts are not supported"
    num_experts = 0 if source.is_gguf else fields.integer("num_experts", 0, 1 << 16, 512)
    dense = fields.get("mlp_only_layers") or []
    if not isinstance(dense, list) or any(type(layer) is not int for layer in dense):
        raise fields.fail("mlp_only_layers", shown(dense), "a list of layers")
    num_layers, step = (fields.integer(key, 1, MAX_LAYERS, 1) for key in ("num_hidden_layers", "decoder_sparse_step"))
    if num_experts and set(range(step - 1, num_layers, step)) - set(dense):
        raise fields.fail("num_experts", num_experts, needed)


def build(m: ModelParts) -> StepGraph:
    """A mixer of its kind and a gated FFN in every layer, each added to the residual stream."""
    h = m.embed()
    for i, layer in enumerate(m.config.layers):
        x = m.norm(h, f"layers.{i}.attn_norm")
        h = m.b.add(h, m.attention(x, i) if layer.kind == "attention" else delta.delta_net(m, x, i))
        h = m.b.add(h, m.gated_ffn(m.norm(h, f"layers.{i}.ffn_norm"), i))
    return m.finish(h)


TOP = less_one(t.TOP)
LAYER = (*less_one(NORMS), *t.FFN)
FULL = (*ATTENTION, *less_one(t.HEAD_NORMS))
QWEN3NEXT = Architecture(
    "qwen3next",
    ("qwen3_next", "Qwen3NextForCausalLM"),
    read,
    TOP,
    LAYER,
    build,
    kinds={"attention": FULL, "recurrence": (*DELTA, *delta.TENSORS)},
)
