"""DeepSeek-V2 and V3, with what others build in their way: latent attention, the first layers dense, then mixtures.

|               | V2                                                    | V3                                           |
| router        | softmax; the groups with the best expert, where a     | sigmoid; a bias for the choice alone; the    |
|               | file names groups; the best of those                  | groups whose two best add up to most         |
| weights       | as they are, times a factor                           | divided by their sum + 1e-20, times a factor |
| shared expert | n_shared_experts, side by side as one, added as it is | the same                                     |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from samebits.models.architecture import Architecture
from samebits.models.glm4moe import EPS, EXPERTS
from samebits.models.parts import mixture
from samebits.models.parts import tensors as t
from samebits.models.parts.builder import ModelParts, StepGraph
from samebits.models.parts.decoder import (
    KEYS,
    MORE_LAYERS,
    Decoder,
    Layer,
    activation,
    read_decoder,
    rotary_dims,
    without_more_layers,
)
from samebits.models.parts.experts import Mixture
from samebits.models.parts.ignored import Ignored, words
from samebits.models.parts.keys import MAX_EXPERTS, MAX_LAYERS, MAX_WIDTH, REQUIRED, Key, Source, number, whole
from samebits.models.parts.latent import Latent, read_latent
from samebits.models.parts.latent_attention import TENSORS, latent_attention
from samebits.models.parts.rope import ROPE_TABLE, Rope, read_rope, stated_rotation, yarn_magnitude

LOG_SHARE = 0.1  # of a logarithm in YaRN's magnitude; GGUF stores the product of both factors
GREEDY, BY_GROUPS = "greedy", "group_limited_greedy"


def _keys(num_dense: int) -> dict[str, Key]:
    """A model's keys, and the dense layers where a config.json states none."""
    own = {name: key for name, key in KEYS.items() if name not in ("num_kv_heads", "head_size")}
    #                     GGUF                         Hugging Face             bounds         where it is absent
    return own | {
        "num_dense": whole("leading_dense_block_count", "first_k_dense_replace", 0, MAX_LAYERS, num_dense,
                           gguf_default=0),
    } | MORE_LAYERS  # fmt: skip


def _expert_keys(
    count: int, top_k: Any, size: int, groups: int, kept: int, scale: float, count_too: str
) -> dict[str, Key]:
    """Return a mixture's keys with what a config.json means that states none; `count_too`: another spelling of the
    number of experts."""
    return {
        "num_experts":     whole("expert_count",               "n_routed_experts",      0, MAX_EXPERTS, count,
                                 gguf_default=0, hf_too=count_too),
        "top_k":           whole("expert_used_count",          "num_experts_per_tok",   1, MAX_EXPERTS, top_k,
                                 gguf_default=REQUIRED),
        "expert_size":     whole("expert_feed_forward_length", "moe_intermediate_size", 1, MAX_WIDTH, size,
                                 gguf_default=REQUIRED),
        "num_groups":      whole("expert_group_count",         "n_group",               1, MAX_EXPERTS, groups,
                                 gguf_default=1),
        "num_groups_kept": whole("expert_group_used_count",    "topk_group",            1, MAX_EXPERTS, kept,
                                 gguf_default=1),
        "scale":           number("expert_weights_scale",      "routed_scaling_factor", 1e-6, 1e6, scale,
                                  gguf_default=1.0),
    }  # fmt: skip


V2_KEYS, V2_EXPERTS = _keys(0), _expert_keys(64, REQUIRED, 1407, 1, 1, 1.0, "num_experts")
V3_KEYS, V3_EXPERTS = _keys(3), _expert_keys(256, 8, 2048, 8, 4, 2.5, "num_local_experts")


def read_v2(source: Source) -> Decoder:
    """GGUF files of both; what their routers do is in them."""
    if source.is_gguf:
        return _read(source, V2_KEYS, _gguf_experts(source))
    source.refuse(None, "norm_topk_prob", "false: files disagree on the factor of normed weights")
    method = source.fields.text("topk_method", GREEDY)
    if method not in (GREEDY, BY_GROUPS):
        raise source.fields.fail("topk_method", repr(method), f"{GREEDY} or {BY_GROUPS}")
    by_groups = method == BY_GROUPS
    groups = {} if by_groups else {"num_groups": 1, "num_groups_kept": 1}
    more = {"is_normalized": False, "group_best": 1, "shared_size": _shared_size(source, V2_EXPERTS, 2)}
    return _read(source, V2_KEYS, mixture.read_mixture(source, V2_EXPERTS, "softmax", **more, **groups))


def read_v3(source: Source) -> Decoder:
    if source.is_gguf:
        return read_v2(source)
    more = {"is_normalized": source.flag("norm_topk_prob", True), "eps": EPS, "has_choice_bias": True}
    shared_size = _shared_size(source, V3_EXPERTS, 1)
    return _read(source, V3_KEYS, mixture.read_mixture(source, V3_EXPERTS, "sigmoid", shared_size=shared_size, **more))


def _gguf_experts(source: Source) -> Mixture | None:
    """Files of V2 do not state the router's rule. Those of V3 that state no groups were made before there were any."""
    has_bias = source.has_tensor(".exp_probs_b.bias")
    experts = mixture.read_mixture(
        source,
        V2_EXPERTS,
        "softmax",
        is_normalized=bool(source.fields.flag("expert_weights_norm", False)),
        eps=EPS,
        has_choice_bias=has_bias,
        shared_size=_shared_size(source, V2_EXPERTS, 0),
    )
    return experts and replace(experts, group_best=1 if experts.scores == "softmax" else 2)


def _shared_size(source: Source, keys: Mapping[str, Key], usual: int) -> int:
    """Shared experts lie side by side as one; `usual`: their number where a config.json states none."""
    count = whole("expert_shared_count", "n_shared_experts", 0, MAX_EXPERTS, usual, gguf_default=0)
    values = source.values({"num_experts": keys["num_experts"], "count": count})
    if not values["num_experts"]:
        return 0
    return int(source.values({"size": keys["expert_size"]})["size"] * values["count"])


def _read(source: Source, keys: Mapping[str, Key], experts: Mixture | None) -> Decoder:
    """Heads share one row per token, so that there is one head of keys."""
    source.refuse(None, "attention_bias", "false: biases of projections are not supported")
    source.refuse("attention.temperature_scale", None, "0: scores that grow with the position are not supported")
    source.refuse(None, "moe_layer_freq", "1: every layer behind the dense ones has experts", 1)
    latent, values = read_latent(source), source.values(keys)
    without_more_layers(source, values)
    num_dense, num_layers = values.pop("num_dense"), values["num_layers"]
    source.refuse(None, "num_key_value_heads", f"num_attention_heads, {values['num_heads']}", values["num_heads"])
    rope, score_factor = _rotation(source, latent, values["context_len"])
    return read_decoder(
        source,
        values | {"num_kv_heads": 1, "head_size": latent.key_size},
        layers=mixture.with_experts((Layer(),) * num_layers, experts, [i >= num_dense for i in range(num_layers)]),
        latent=latent,
        mixture=experts,
        ropes={ROPE_TABLE: rope},
        rope_is_interleaved=source.is_gguf or source.flag("rope_interleave", True),
        query_scalar=latent.key_size / score_factor**2,
        activation=activation(source, "hidden_act", default="silu"),
        has_qkv_bias=False,
        has_out_bias=False,
    )


def _rotation(source: Source, latent: Latent, context_len: int) -> tuple[Rope, float]:
    """The rotation, and what scores are multiplied by beside it: YaRN's magnitude acts on all of a head, not only on
    its rotated part. GGUF files state that one alone; the rotated part has no other then."""
    rope = read_rope(source, rotary_dims(source, latent.rotary_size), context_len)
    weight = _score_weight(source, rope.scaling.kind)
    if not weight:
        return rope, 1.0
    if source.is_gguf:
        rope = replace(rope, scaling=replace(rope.scaling, magnitude=1.0))
    return rope, yarn_magnitude(rope.scaling.factor, weight) ** 2


def _score_weight(source: Source, kind: str) -> float:
    """Return the weight of the logarithm in the magnitude of scores; 0 where a file has none.

    transformers multiplies scores in every kind of scaling whose file states the weight.
    """
    fields = source.fields
    if source.is_gguf:
        stated = float(fields.number("rope.scaling.yarn_log_multiplier", 0.0, 1e3, 0.0))
        return stated / LOG_SHARE if kind == "yarn" else 0.0
    rope = stated_rotation(fields)
    weight = float(rope.number("mscale_all_dim", 0.0, 1e3, 0.0))
    if weight and kind == "longrope":
        raise rope.fail("mscale_all_dim", weight, "0 beside longrope")
    return weight if kind != "none" else 0.0


def build(m: ModelParts) -> StepGraph:
    """Latent attention and a feed-forward part, each added to the residual stream."""
    h = m.embed()
    for layer in range(m.config.num_layers):
        h = m.b.add(h, latent_attention(m, m.norm(h, f"layers.{layer}.attn_norm"), layer))
        h = m.b.add(h, mixture.feed_forward(m, m.norm(h, f"layers.{layer}.ffn_norm"), layer))
    return m.finish(h)


LAYER, KINDS = (*t.NORMS, *TENSORS), {"dense": t.FFN, "experts": EXPERTS}
V2_IGNORED = Ignored(
    hf=words("head_dim qk_head_dim"),  # derived from other sizes
    hf_only={"scoring_func": ("softmax",)},
    gguf=words("attention.head_count_kv"),  # 1, or the number of heads: it depends on the version of the converter
    tensors=(r"blk\.\d+\.attn_kv_b\.weight",),  # where a file has keys and values apart too
)
V3_IGNORED = replace(
    V2_IGNORED,
    hf_only={"scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",)},
)
DEEPSEEK2 = Architecture(
    "deepseek2",
    ("deepseek_v2", "DeepseekV2ForCausalLM"),
    read_v2,
    t.TOP,
    LAYER,
    build,
    KINDS,
    ignored=V2_IGNORED,
)
DEEPSEEK3 = replace(
    DEEPSEEK2,
    name="deepseek3",
    hf=("deepseek_v3", "DeepseekV3ForCausalLM"),
    read=read_v3,
    ignored=V3_IGNORED,
)
