"""Mixtures of experts: a router, the products of every token with the experts it chose, and what all tokens share.

How a model routes is its own; `Mixture` in experts.py names the ways. Files differ in how they store experts: stacked,
one by one, or stacked with gate and up joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from samebits.graph import Value
from samebits.loaders.fields import shown
from samebits.models.architecture import Rows, Weight
from samebits.models.parts.builder import ModelParts
from samebits.models.parts.decoder import Layer
from samebits.models.parts.experts import Mixture, mixture_of
from samebits.models.parts.keys import MAX_EXPERTS, MAX_LAYERS, Key, Source, number, whole
from samebits.models.parts.squared import squared_ffn, squared_relu

SCORES = {1: "softmax", 2: "sigmoid", 3: "chosen"}  # GGUF's expert_gating_func

#                           GGUF                          Hugging Face             bounds           where it is absent
GROUP_KEYS: dict[str, Key] = {
    "num_groups":      whole("expert_group_count",         "n_group",               1, MAX_EXPERTS, 1),
    "num_groups_kept": whole("expert_group_used_count",    "topk_group",            1, MAX_EXPERTS, 1),
    "scale":           number("expert_weights_scale",      "routed_scaling_factor", 1e-6, 1e6, 1.0),
}  # fmt: skip
GATE, UP = (Rows(("ExpertSize", "ExpertSize"), (part,), axis=1) for part in (0, 1))  # where they are joined


def tensors(hf: str, parts: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")) -> tuple[Weight, ...]:
    """The experts of a layer, which Hugging Face names behind `hf`: gate, up and down of each, or of all."""
    gate, up, down = parts
    each, apart, joined = f"{hf}.{{}}", "mixture.is_apart", "mixture.is_joined"
    #          ours                shape                   GGUF                Hugging Face
    return (
        Weight("ffn.experts.gate", "Experts ExpertSize H", "ffn_gate_exps",    f"{each}.{gate}", when=apart),
        Weight("ffn.experts.up",   "Experts ExpertSize H", "ffn_up_exps",      f"{each}.{up}",   when=apart),
        Weight("ffn.experts.down", "Experts H ExpertSize", "ffn_down_exps",    f"{each}.{down}", when=apart),
        Weight("ffn.experts.gate", "Experts ExpertSize H", "ffn_gate_up_exps", f"{hf}.gate_up_proj", when=joined,
               rows=GATE, bare="hf"),
        Weight("ffn.experts.up",   "Experts ExpertSize H", "ffn_gate_up_exps", f"{hf}.gate_up_proj", when=joined,
               rows=UP, bare="hf"),
        Weight("ffn.experts.down", "Experts H ExpertSize", "ffn_down_exps",    f"{hf}.down_proj", when=joined,
               bare="hf"),
    )  # fmt: skip


def shared_tensors(hf: str) -> tuple[Weight, ...]:
    """What all tokens of a layer pass through, which Hugging Face names behind `hf`."""
    #          ours              shape           GGUF              Hugging Face
    return (
        Weight("ffn.shared.gate", "SharedSize H", "ffn_gate_shexp", f"{hf}.gate_proj", when="mixture.has_shared"),
        Weight("ffn.shared.up",   "SharedSize H", "ffn_up_shexp",   f"{hf}.up_proj",   when="mixture.has_shared"),
        Weight("ffn.shared.down", "H SharedSize", "ffn_down_shexp", f"{hf}.down_proj", when="mixture.has_shared"),
    )  # fmt: skip


def read_mixture(source: Source, keys: Mapping[str, Key], scores: str, **given: Any) -> Mixture | None:
    """A model's mixture by a table of keys, named as the fields of `Mixture`; None where it has no experts.

    scores   the router's rule, where a GGUF file does not state it
    given    fields that no key states
    """
    values = source.values({"num_experts": keys["num_experts"]})
    if not values["num_experts"]:
        source.skip(keys)
        return None
    joined = ".ffn_gate_up_exps.weight" if source.is_gguf else ".experts.gate_up_proj"
    more: dict[str, Any] = {"scores": _scores(source, scores), "is_joined": source.has_tensor(joined)}
    return _checked(source, Mixture(**more | source.values(keys) | given))


def is_normalized(source: Source, usual: bool) -> bool:
    """Whether the weights of a token's experts add up to 1; `usual` where a config.json does not say. GGUF files that
    say nothing are of models that do so."""
    if source.is_gguf:
        return bool(source.fields.flag("expert_weights_norm", True))
    return source.flag("norm_topk_prob", usual)


def _scores(source: Source, usual: str) -> str:
    if not source.is_gguf or not (rule := source.fields.integer("expert_gating_func", 0, 4, 0)):
        return usual
    if rule not in SCORES:
        needed = ", ".join(f"{number} ({name})" for number, name in SCORES.items())
        raise source.fields.fail("expert_gating_func", rule, f"one of {needed}")
    return SCORES[rule]


def _checked(source: Source, m: Mixture) -> Mixture:
    """The same, if its numbers agree with one another."""
    if m.top_k > m.num_experts:
        raise source.fail("experts of a token", m.top_k, f"at most the {m.num_experts} that there are")
    if m.num_experts % m.num_groups:
        raise source.fail("groups of experts", m.num_groups, f"a divisor of the {m.num_experts} experts")
    if m.num_groups_kept > m.num_groups:
        raise source.fail("groups of a token", m.num_groups_kept, f"at most the {m.num_groups} that there are")
    each = m.num_experts // m.num_groups
    if m.num_groups > 1 and not m.group_best <= each:
        raise source.fail("groups of experts", m.num_groups, f"groups of at least {m.group_best} experts")
    if m.top_k > each * m.num_groups_kept:
        needed = f"at most the {each * m.num_groups_kept} of the groups that it chooses"
        raise source.fail("experts of a token", m.top_k, needed)
    return m


def with_experts(
    layers: tuple[Layer, ...], experts: Mixture | None, is_sparse: list[bool] | None = None
) -> tuple[Layer, ...]:
    """The same layers with experts, where the model has any, in place of dense parts: in all, or where sparse."""
    if experts is None:
        return layers
    pairs = zip(layers, is_sparse or [True] * len(layers), strict=True)
    return tuple(replace(layer, ffn="experts") if sparse else layer for layer, sparse in pairs)


def sparse_layers(source: Source, num_layers: int) -> list[bool]:
    """Qwen's way to say it: every so many layers but for those that a config.json lists; GGUF files have no others."""
    if source.is_gguf:
        return [True] * num_layers
    fields, dense = source.fields, source.fields.get("mlp_only_layers") or []
    if not isinstance(dense, list) or any(type(layer) is not int for layer in dense):
        raise fields.fail("mlp_only_layers", shown(dense), "a list of layers")
    step = fields.integer("decoder_sparse_step", 1, MAX_LAYERS, 1)
    return [(i + 1) % step == 0 and i not in dense for i in range(num_layers)]


def feed_forward(m: ModelParts, x: Value, layer: int) -> Value:
    """A layer's feed-forward part, dense or of experts."""
    return mixture(m, x, layer) if m.config.layers[layer].ffn == "experts" else m.gated_ffn(x, layer)


def mixture(m: ModelParts, x: Value, layer: int) -> Value:
    """The sum of what a token's experts give, each times its weight, and of what all tokens share."""
    b, c, name = m.b, mixture_of(m.config.mixture), f"layers.{layer}.ffn"
    choice_bias = m.weight(f"{name}.choice_bias") if c.has_choice_bias else None
    expert_ids, weights = b.route(m.linear(x, f"{name}.router"), bias=choice_bias, **c.route_attrs())
    pairs, seg_indptr = b.expert_layout(expert_ids, num_experts=c.num_experts)
    entered = m.linear(x, f"{name}.latent_down") if c.has_latent else x

    def product(given: Value, part: str) -> Value:
        tensor = f"{name}.experts.{part}"
        bias = m.weight(f"{tensor}_bias") if c.has_bias else None
        return b.expert_gemm(given, m.weight(tensor), pairs, seg_indptr, bias=bias)

    if not c.is_gated:
        hidden = squared_relu(m, product(entered, "up"))
    else:
        both = b.concat_columns(product(entered, "gate"), product(entered, "up"))
        hidden = b.clamped_swiglu(both, alpha=c.alpha, limit=c.limit) if c.limit else m.gated(both)
    y, shared = product(hidden, "down"), _shared(m, x, layer, c)
    if not c.has_latent:
        return b.combine(y, weights, shared=shared, shared_gate=_gate(m, x, name, c))
    back = m.linear(b.combine(y, weights), f"{name}.latent_up")
    return back if shared is None else b.add(back, shared)


def _shared(m: ModelParts, x: Value, layer: int, c: Mixture) -> Value | None:
    if not c.has_shared:
        return None
    part = "ffn.shared"
    return m.gated_ffn(x, layer, part) if c.is_gated else squared_ffn(m, x, layer, part)


def _gate(m: ModelParts, x: Value, name: str, c: Mixture) -> Value | None:
    return m.linear(x, f"{name}.shared.router") if c.has_shared_gate else None
