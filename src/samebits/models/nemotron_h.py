"""Nemotron-H and Nemotron 3: layers of one block each, a state space, attention without a rotation, an FFN, or experts.

GGUF files with experts call it nemotron_h_moe.

| router        | sigmoid; a bias for the choice alone; the groups whose two best add up to most; the best of those |
| weights       | without the bias, divided by their sum + 1e-20 where norm_topk_prob says so, times a factor       |
| expert        | no gate: down(relu(up(x))^2); of a projection of x where moe_latent_size says so                   |
| shared expert | one, added as it is                                                                               |
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from samebits.models import mamba2
from samebits.models.architecture import Architecture, Weight
from samebits.models.parts import mixture, ssm
from samebits.models.parts.builder import ModelParts, StepGraph
from samebits.models.parts.decoder import KEYS, MORE_LAYERS, Decoder, read_decoder, without_more_layers
from samebits.models.parts.experts import Mixture
from samebits.models.parts.hybrid import KINDS, by_layer, layers_of, stated_kinds
from samebits.models.parts.ignored import OFF, Ignored, words
from samebits.models.parts.keys import (
    MAX_EXPERTS,
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
from samebits.models.parts.squared import squared_ffn

PATTERN = {"M": "recurrence", "*": "attention", "-": "ffn", "E": "experts"}
BLOCKS = KINDS | {"mlp": "ffn", "moe": "experts"}
EPS = 1e-20  # beside the sum of weights; no file stores it

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
} | MORE_LAYERS  # fmt: skip
MIXTURE_KEYS = mixture.GROUP_KEYS | {
    "num_experts":    whole("expert_count",                      "n_routed_experts",   0, MAX_EXPERTS, 8,
                            gguf_default=0, hf_too="num_local_experts"),
    "top_k":          whole("expert_used_count",                 "num_experts_per_tok", 1, MAX_EXPERTS, 2,
                            gguf_default=REQUIRED),
    "expert_size":    whole("expert_feed_forward_length",        "moe_intermediate_size", 1, MAX_WIDTH, 7688,
                            gguf_default=REQUIRED),
    "latent_size":    whole("moe_latent_size",                   "moe_latent_size",    1, MAX_WIDTH, 0),
    "shared_size":    whole("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size", 0, MAX_WIDTH,
                            7688, gguf_default=0),
}  # fmt: skip
SSM_KEYS = {
    "num_heads":      whole(None,                                "mamba_num_heads",    1, MAX_HEADS, 128),
    "head_size":      whole(None,                                "mamba_head_dim",     1, MAX_HEAD_SIZE, 64),
    "state_size":     whole(None,                                "ssm_state_size",     1, MAX_HEAD_SIZE, 128),
    "num_groups":     whole(None,                                "n_groups",           1, MAX_HEADS, 8,
                            hf_too="mamba_n_groups"),
    "num_taps":       whole(None,                                "conv_kernel",        2, MAX_TAPS, 4,
                            hf_too="mamba_d_conv"),
    "dt_min":         number(None,                               "time_step_min",      0.0, 1e6, 1e-3,
                             gguf_default=0.0, hf_too="mamba_dt_min"),
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
EXPERTS = (
    Weight("ffn.router",       "Experts H",            "ffn_gate_inp",     "mixer.gate"),
    Weight("ffn.choice_bias",  "Experts",              "exp_probs_b.bias", "mixer.gate.e_score_correction_bias",
           is_f32=True, bare="hf"),
    Weight("ffn.latent_down",  "ExpertWidth H",        "ffn_latent_down",  "mixer.fc1_latent_proj",
           when="mixture.has_latent"),
    Weight("ffn.latent_up",    "H ExpertWidth",        "ffn_latent_up",    "mixer.fc2_latent_proj",
           when="mixture.has_latent"),
    Weight("ffn.experts.up",   "Experts ExpertSize ExpertWidth", "ffn_up_exps", "mixer.experts.{}.up_proj"),
    Weight("ffn.experts.down", "Experts ExpertWidth ExpertSize", "ffn_down_exps", "mixer.experts.{}.down_proj"),
    Weight("ffn.shared.up",    "SharedSize H",         "ffn_up_shexp",     "mixer.shared_experts.up_proj",
           when="mixture.has_shared"),
    Weight("ffn.shared.down",  "H SharedSize",         "ffn_down_shexp",   "mixer.shared_experts.down_proj",
           when="mixture.has_shared"),
)  # fmt: skip


def read(source: Source) -> Decoder:
    for key in ("use_bias", "mlp_bias", "attention_bias"):
        source.refuse(None, key, "false: biases of projections are not supported")
    if (act := source.fields.get("mlp_hidden_act")) not in (None, "relu2"):
        raise source.fields.fail("mlp_hidden_act", act, "relu2")
    values = source.values(NEMOTRON_KEYS)
    values.pop("old_head_size")
    kinds = _gguf_kinds(source, values) if source.is_gguf else _hf_kinds(source, values)
    if "experts" not in kinds:
        source.skip(MIXTURE_KEYS)
    return read_decoder(
        source,
        values,
        layers=layers_of(kinds, rope=None),
        ropes={},
        hf_root="backbone",
        mixture=_mixture(source) if "experts" in kinds else None,
        recurrence=ssm.read_ssm(source, SSM_KEYS, source.spelling("use_conv_bias", "mamba_conv_bias")),
    )


def _mixture(source: Source) -> Mixture:
    normalized = mixture.is_normalized(source, True)
    given = {"eps": EPS, "has_choice_bias": True, "is_gated": False, "is_normalized": normalized}
    experts = mixture.read_mixture(source, MIXTURE_KEYS, "sigmoid", **given)
    if experts is None:
        raise source.fail("experts", 0, "at least 1 in a model with layers of experts")
    return experts


def _gguf_kinds(source: Source, values: dict[str, Any]) -> list[str]:
    """Layers with heads of keys attend, those with an FFN have nothing else, which is experts where there is a router;
    the others are state spaces. Layers that predict more tokens, which come last, are left out."""
    num_layers = values["num_layers"]
    heads = by_layer(source, "attention.head_count_kv", num_layers, MAX_HEADS)
    sizes = by_layer(source, "feed_forward_length", num_layers, MAX_WIDTH)
    values["num_kv_heads"], values["ffn_size"] = max(*heads, 1), max(*sizes, 1)
    fed = ["experts" if f"blk.{i}.ffn_gate_inp.weight" in source.tensors else "ffn" for i in range(num_layers)]
    kinds = zip(heads, sizes, fed, strict=True)
    found = ["attention" if n else kind if size else "recurrence" for n, size, kind in kinds]
    without_more_layers(source, values)
    return found[: values["num_layers"]]


def _hf_kinds(source: Source, values: dict[str, Any]) -> list[str]:
    """A list of kinds, or a text with a letter for each layer; it counts the layers."""
    fields, pattern = source.fields, source.fields.get("hybrid_override_pattern")
    if isinstance(types := fields.get(source.spelling("layers_block_type", "layer_types")), list):
        values["num_layers"] = min(len(types), MAX_LAYERS)
        if kinds := stated_kinds(source, "layers_block_type", values["num_layers"], BLOCKS, "layer_types"):
            return kinds
    if not isinstance(pattern, str) or not 1 <= len(pattern) <= MAX_LAYERS or set(pattern) - PATTERN.keys():
        raise fields.fail("hybrid_override_pattern", pattern, f"letters among {' '.join(PATTERN)}, one for each layer")
    values["num_layers"] = len(pattern)
    return [PATTERN[letter] for letter in pattern]


def build(m: ModelParts) -> StepGraph:
    """One block in every layer, added to the residual stream."""
    blocks = {"recurrence": ssm.ssm, "attention": ModelParts.attention, "ffn": squared_ffn, "experts": mixture.mixture}
    h = m.embed()
    for i, layer in enumerate(m.config.layers):
        h = m.b.add(h, blocks[layer.kind](m, m.norm(h, f"layers.{i}.attn_norm"), i))
    return m.finish(h)


NEMOTRON_H = Architecture(
    "nemotron_h",
    ("nemotron_h", "NemotronHForCausalLM"),
    read,
    mamba2.TOP,
    mamba2.NORM,
    build,
    kinds={"attention": ATTENTION, "ffn": FFN, "experts": EXPERTS, "recurrence": ssm.tensors("mixer")},
    ignored=Ignored(
        hf=words(
            """
            chunk_size expand mamba_chunk_size mamba_dt_init_floor mamba_dt_limit mamba_dt_max mamba_expand
            mamba_ssm_cache_dtype moe_shared_expert_overlap mtp_hybrid_override_pattern mtp_layers_block_type
            n_shared_experts norm_eps norm_topk_prob num_query_groups partial_rotary_factor
            rescale_prenorm_residual residual_in_fp32 rms_norm_eps time_step_floor time_step_limit time_step_max
            time_step_rank use_mamba_kernels
            """
        ),
        hf_only={"mamba_hidden_act": ("silu",), "mamba_proj_bias": OFF},
        gguf=words("expert_shared_count expert_weights_norm"),
    ),
)
NEMOTRON_H_MOE = replace(NEMOTRON_H, name="nemotron_h_moe")
