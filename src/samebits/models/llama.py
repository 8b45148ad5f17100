"""Llama 2 and 3.x, TinyLlama, SmolLM2: a pre-norm decoder. Mistral and Mixtral in GGUF files too, with a sliding window
and with experts."""

from __future__ import annotations

from samebits.models.architecture import Architecture, Weight
from samebits.models.parts import mixture
from samebits.models.parts import tensors as t
from samebits.models.parts.builder import ModelParts, StepGraph
from samebits.models.parts.decoder import KEYS, Decoder, activation, has_ffn_bias, read_decoder, windows
from samebits.models.parts.ignored import Ignored, words
from samebits.models.parts.keys import MAX_CONTEXT, MAX_EXPERTS, MAX_WIDTH, REQUIRED, Source, whole

#                            GGUF                        Hugging Face   bounds            where it is absent
LLAMA_KEYS = KEYS | {
    "window":         whole("attention.sliding_window",  None,          1, MAX_CONTEXT, None, may_be_off=True),
}  # fmt: skip
MIXTRAL_KEYS = {
    "num_experts":    whole("expert_count",              "num_local_experts",   0, MAX_EXPERTS, 8, gguf_default=0,
                            hf_too="num_experts"),
    "top_k":          whole("expert_used_count",         "num_experts_per_tok", 1, MAX_EXPERTS, 2,
                            gguf_default=REQUIRED),
    "expert_size":    whole("feed_forward_length",       "intermediate_size",   1, MAX_WIDTH),
}  # fmt: skip
EXPERTS = (
    Weight("ffn.router", "Experts H", "ffn_gate_inp", "block_sparse_moe.gate"),
    *mixture.tensors("block_sparse_moe.experts", ("w1", "w3", "w2")),
)


def read(source: Source) -> Decoder:
    """Files of llama.cpp pair rotary elements that lie side by side."""
    values = source.values(LLAMA_KEYS)
    layers = windows(source, values.pop("window"), [True] * values["num_layers"])
    experts = mixture.read_mixture(source, MIXTRAL_KEYS, "softmax") if source.is_gguf else None
    size, head_size = values["ffn_size"], values["head_size"]
    source.refuse("attention.head_dim", None, f"the head size, {head_size}", head_size)  # Ollama states it twice
    source.refuse("expert_feed_forward_length", None, f"feed_forward_length, {size}", size)
    return read_decoder(
        source,
        values,
        layers=mixture.with_experts(layers, experts),
        activation=activation(source, "hidden_act", default="silu"),
        rope_is_interleaved=source.is_gguf,
        has_ffn_bias=has_ffn_bias(source),
        mixture=experts,
    )


def build(m: ModelParts) -> StepGraph:
    """Attention and a gated FFN or experts, each added to the residual stream."""
    h = m.embed()
    for layer in range(m.config.num_layers):
        h = m.b.add(h, m.attention(m.norm(h, f"layers.{layer}.attn_norm"), layer))
        h = m.b.add(h, mixture.feed_forward(m, m.norm(h, f"layers.{layer}.ffn_norm"), layer))
    return m.finish(h)


BLOCK = (*t.NORMS, *t.ATTENTION, *t.QKV_BIASES, *t.OUT_BIAS)
FFNS = {"dense": t.FFN, "experts": EXPERTS}
LAYER = (*BLOCK, *t.FFN)
LLAMA = Architecture(
    "llama",
    ("llama", "LlamaForCausalLM"),
    read,
    t.TOP,
    BLOCK,
    build,
    kinds=FFNS | {"dense": (*t.FFN, *t.FFN_BIASES)},
    ignored=Ignored(hf=words("is_llama_config sliding_window")),
)
