"""GLM-4.5 to 4.7 with experts: the first layers dense, half of each head rotated, biases on Q, K and V.

| router        | sigmoid; a bias for the choice alone; the groups whose two best add up to most; the best of those |
| weights       | without the bias, divided by their sum + 1e-20 where norm_topk_prob says so, times a factor       |
| shared expert | n_shared_experts, side by side as one, added as it is                                             |
"""

from __future__ import annotations

from samebits.models import llama
from samebits.models.architecture import Architecture, Weight
from samebits.models.parts import mixture
from samebits.models.parts import tensors as t
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
from samebits.models.parts.keys import MAX_EXPERTS, MAX_LAYERS, MAX_WIDTH, REQUIRED, Source, number, whole
from samebits.models.parts.rope import ROPE_TABLE, read_rope

ROTARY_SHARE = 0.5  # of a head, where a config.json does not say
EPS = 1e-20  # beside the sum of weights; no file stores it

#                            GGUF                                Hugging Face                bounds         absent
GLM_KEYS = KEYS | {
    "rms_eps":        number("attention.layer_norm_rms_epsilon", "rms_norm_eps",             1e-12, 1.0, 1e-5,
                             gguf_default=REQUIRED),
    "num_dense":      whole("leading_dense_block_count",         "first_k_dense_replace",    0, MAX_LAYERS, 1,
                            gguf_default=0),
} | MORE_LAYERS  # fmt: skip
MIXTURE_KEYS = mixture.GROUP_KEYS | {
    "num_experts":    whole("expert_count",                      "n_routed_experts",         1, MAX_EXPERTS, 128,
                            gguf_default=REQUIRED, hf_too="num_local_experts"),
    "top_k":          whole("expert_used_count",                 "num_experts_per_tok",      1, MAX_EXPERTS, 8,
                            gguf_default=REQUIRED),
    "expert_size":    whole("expert_feed_forward_length",        "moe_intermediate_size",    1, MAX_WIDTH, 1408,
                            gguf_default=REQUIRED),
}  # fmt: skip
SHARED_KEY = {
    "num_shared":     whole("expert_shared_count",               "n_shared_experts",         0, MAX_EXPERTS, 1,
                            gguf_default=0),
}  # fmt: skip
NORMS = (
    Weight("attn_norm",       "H",         "attn_norm",           "input_layernorm"),
    Weight("ffn_norm",        "H",         "post_attention_norm", "post_attention_layernorm"),
)  # fmt: skip
HEAD_NORMS = (
    Weight("attn.q_norm",     "D",         "attn_q_norm",         "self_attn.q_norm", when="has_head_norms"),
    Weight("attn.k_norm",     "D",         "attn_k_norm",         "self_attn.k_norm", when="has_head_norms"),
)  # fmt: skip
EXPERTS = (
    Weight("ffn.router",      "Experts H", "ffn_gate_inp",        "mlp.gate"),
    Weight("ffn.choice_bias", "Experts",   "exp_probs_b.bias",    "mlp.gate.e_score_correction_bias",
           when="mixture.has_choice_bias", is_f32=True, bare="hf"),
    *mixture.tensors("mlp.experts"),
    *mixture.shared_tensors("mlp.shared_experts"),
)  # fmt: skip


def read(source: Source) -> Decoder:
    values = source.values(GLM_KEYS)
    without_more_layers(source, values)
    num_dense, num_layers = values.pop("num_dense"), values["num_layers"]
    dims = rotary_dims(source, values["head_size"], ROTARY_SHARE)
    has_head_norms = source.has_tensor(".attn_q_norm.weight") if source.is_gguf else source.flag("use_qk_norm", False)
    experts = _read_experts(source)
    return read_decoder(
        source,
        values,
        layers=mixture.with_experts((Layer(),) * num_layers, experts, [i >= num_dense for i in range(num_layers)]),
        ropes={ROPE_TABLE: read_rope(source, dims, values["context_len"])},
        activation=activation(source, "hidden_act", default="silu"),
        has_out_bias=False,
        has_head_norms=has_head_norms,
        mixture=experts,
    )


def _read_experts(source: Source) -> Mixture | None:
    return mixture.read_mixture(
        source,
        MIXTURE_KEYS,
        "sigmoid",
        is_normalized=mixture.is_normalized(source, True),
        eps=EPS,
        has_choice_bias=source.has_tensor(".exp_probs_b.bias") or not source.is_gguf,
        shared_size=_shared_size(source),
    )


def _shared_size(source: Source) -> int:
    """Shared experts lie side by side as one."""
    each = source.values({"each": MIXTURE_KEYS["expert_size"]})["each"]
    return int(each * source.values(SHARED_KEY)["num_shared"])


LAYER = (*NORMS, *t.ATTENTION, *t.QKV_BIASES, *HEAD_NORMS)
GLM4MOE = Architecture(
    "glm4moe",
    ("glm4_moe", "Glm4MoeForCausalLM"),
    read,
    t.TOP,
    LAYER,
    llama.build,
    kinds={"dense": t.FFN, "experts": EXPERTS},
)
