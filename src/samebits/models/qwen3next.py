"""Qwen3-Next: gated delta nets, attention with a gate in every fourth layer, and experts, or dense parts in layers that
are listed.

| router        | softmax over all, the best, divided by their sum where norm_topk_prob says so |
| shared expert | one, times a sigmoid of its own                                               |
"""

from __future__ import annotations

from collections.abc import Callable

from samebits.models.architecture import Architecture, Rows, Weight
from samebits.models.gemma2 import less_one
from samebits.models.parts import delta_net as delta
from samebits.models.parts import mixture
from samebits.models.parts import tensors as t
from samebits.models.parts.builder import ModelParts, StepGraph
from samebits.models.parts.decoder import (
    KEYS,
    MORE_LAYERS,
    Decoder,
    activation,
    read_decoder,
    rotary_dims,
    without_more_layers,
)
from samebits.models.parts.experts import Mixture
from samebits.models.parts.hybrid import layers_of, stated_kinds
from samebits.models.parts.ignored import Ignored, words
from samebits.models.parts.keys import MAX_EXPERTS, MAX_HEAD_SIZE, MAX_LAYERS, MAX_WIDTH, REQUIRED, Source, whole
from samebits.models.parts.rope import ROPE_TABLE, read_rope

ROTARY_SHARE = 0.25  # of a head, where a config.json does not say

#                            GGUF                      Hugging Face               bounds           where it is absent
NEXT_KEYS = KEYS | {
    "head_size":      whole("attention.key_length",    "head_dim",                1, MAX_HEAD_SIZE, 256),
    "period":         whole("full_attention_interval", "full_attention_interval", 1, MAX_LAYERS, 4),
    "ffn_size":       whole("feed_forward_length",     "intermediate_size",       0, MAX_WIDTH, 0),
} | MORE_LAYERS  # fmt: skip
MIXTURE_KEYS = {
    "num_experts":    whole("expert_count",            "num_experts",             0, MAX_EXPERTS, 512, gguf_default=0,
                            hf_too="num_local_experts"),
    "top_k":          whole("expert_used_count",       "num_experts_per_tok",     1, MAX_EXPERTS, 10,
                            gguf_default=REQUIRED),
    "expert_size":    whole("expert_feed_forward_length", "moe_intermediate_size", 1, MAX_WIDTH, 512,
                            gguf_default=REQUIRED),
    "shared_size":    whole("expert_shared_feed_forward_length", "shared_expert_intermediate_size", 1, MAX_WIDTH, 512,
                            gguf_default=REQUIRED),
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
EXPERTS = (
    Weight("ffn.router",        "Experts H", "ffn_gate_inp",       "mlp.gate"),
    *mixture.tensors("mlp.experts"),
    *mixture.shared_tensors("mlp.shared_expert"),
    Weight("ffn.shared.router", "1 H",       "ffn_gate_inp_shexp", "mlp.shared_expert_gate", gguf_shape="H"),
)  # fmt: skip


def read(source: Source) -> Decoder:
    return read_hybrid(source, is_tiled=False, read_experts=_read_experts)


def _read_experts(source: Source) -> Mixture | None:
    normalized = mixture.is_normalized(source, True)
    return mixture.read_mixture(source, MIXTURE_KEYS, "softmax", is_normalized=normalized, has_shared_gate=True)


def no_experts(source: Source) -> None:
    """For `read_hybrid`, of a model that is dense."""


def read_hybrid(source: Source, is_tiled: bool, read_experts: Callable[[Source], Mixture | None]) -> Decoder:
    source.refuse(None, "attention_bias", "false: biases of projections are not supported")
    values = source.values(NEXT_KEYS)
    without_more_layers(source, values)
    period, num_layers = values.pop("period"), values["num_layers"]
    kinds = stated_kinds(source, "layer_types", num_layers)
    usual = ["recurrence" if (i + 1) % period else "attention" for i in range(num_layers)]
    dims = rotary_dims(source, values["head_size"], ROTARY_SHARE)
    is_sparse = mixture.sparse_layers(source, num_layers)
    if not any(is_sparse):
        source.skip(MIXTURE_KEYS)
    experts = read_experts(source) if any(is_sparse) else None
    return read_decoder(
        source,
        values,
        layers=mixture.with_experts(layers_of(kinds or usual, ROPE_TABLE), experts, is_sparse),
        mixture=experts,
        ropes={ROPE_TABLE: read_rope(source, dims, values["context_len"])},
        activation=activation(source, "hidden_act", default="silu"),
        recurrence=delta.read_delta_net(source, is_tiled),
        has_qkv_bias=False,
        has_out_bias=False,
    )


def build(m: ModelParts) -> StepGraph:
    """A mixer of its kind and a gated FFN or experts in every layer, each added to the residual stream."""
    h = m.embed()
    for i, layer in enumerate(m.config.layers):
        x = m.norm(h, f"layers.{i}.attn_norm")
        h = m.b.add(h, m.attention(x, i) if layer.kind == "attention" else delta.delta_net(m, x, i))
        h = m.b.add(h, mixture.feed_forward(m, m.norm(h, f"layers.{i}.ffn_norm"), i))
    return m.finish(h)


TOP = less_one(t.TOP)
LAYER = less_one(NORMS)
FFNS = {"dense": t.FFN, "experts": EXPERTS}
FULL = (*ATTENTION, *less_one(t.HEAD_NORMS))
QWEN3NEXT = Architecture(
    "qwen3next",
    ("qwen3_next", "Qwen3NextForCausalLM"),
    read,
    TOP,
    LAYER,
    build,
    kinds={"attention": FULL, "recurrence": (*DELTA, *delta.TENSORS), **FFNS},
    ignored=Ignored(hf=words("norm_topk_prob")),  # read where there are experts
)
