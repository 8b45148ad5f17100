"""Qwen3-MoE: Qwen3 with experts in place of every feed-forward part, or of those that its config.json does not list.

| router        | softmax over all, the best, divided by their sum where norm_topk_prob says so |
| shared expert | none                                                                          |
"""

from __future__ import annotations

from samebits.models import llama
from samebits.models.architecture import Architecture, Weight
from samebits.models.parts import mixture
from samebits.models.parts import tensors as t
from samebits.models.parts.decoder import Decoder, activation, read_decoder
from samebits.models.parts.ignored import OFF, ON, Ignored
from samebits.models.parts.keys import MAX_EXPERTS, MAX_WIDTH, REQUIRED, Source, whole
from samebits.models.qwen2 import CHUNKS, QWEN_KEYS, layers_of

#                            GGUF                          Hugging Face             bounds           where it is absent
MIXTURE_KEYS = {
    "num_experts":    whole("expert_count",               "num_experts",           1, MAX_EXPERTS, 128,
                            gguf_default=REQUIRED, hf_too="num_local_experts"),
    "top_k":          whole("expert_used_count",          "num_experts_per_tok",   1, MAX_EXPERTS, 8,
                            gguf_default=REQUIRED),
    "expert_size":    whole("expert_feed_forward_length", "moe_intermediate_size", 1, MAX_WIDTH, 768,
                            gguf_default=REQUIRED),
}  # fmt: skip
OLLAMA = {"norm_top_k_prob": ON}  # a key of its converter, which llama.cpp does not know
EXPERTS = (
    Weight("ffn.router", "Experts H", "ffn_gate_inp", "mlp.gate"),
    *mixture.tensors("mlp.experts"),
)


def read(source: Source) -> Decoder:
    values = source.values(QWEN_KEYS)
    layers = layers_of(source, values.pop("window"), values.pop("first_window"), values["num_layers"])
    normalized = mixture.is_normalized(source, False)
    experts = mixture.read_mixture(source, MIXTURE_KEYS, "softmax", is_normalized=normalized)
    return read_decoder(
        source,
        values,
        layers=mixture.with_experts(layers, experts, mixture.sparse_layers(source, len(layers))),
        activation=activation(source, "hidden_act", default="silu"),
        mixture=experts,
    )


LAYER = (*t.NORMS, *t.ATTENTION, *t.QKV_BIASES, *t.OUT_BIAS, *t.HEAD_NORMS)
QWEN3MOE = Architecture(
    "qwen3moe",
    ("qwen3_moe", "Qwen3MoeForCausalLM"),
    read,
    t.TOP,
    LAYER,
    llama.build,
    kinds={"dense": t.FFN, "experts": EXPERTS},
    ignored=Ignored(hf=CHUNKS, hf_only={"shared_expert_intermediate_size": OFF, "use_qk_norm": ON}, gguf_only=OLLAMA),
)
