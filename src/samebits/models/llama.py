"""Llama 2 and 3.x, TinyLlama, SmolLM2: a pre-norm decoder. Mistral in GGUF files too, with its sliding window."""

from __future__ import annotations

from samebits.models.architecture import Architecture
from samebits.models.parts import tensors as t
from samebits.models.parts.builder import ModelParts, StepGraph
from samebits.models.parts.decoder import KEYS, Decoder, activation, read_decoder, windows
from samebits.models.parts.keys import MAX_CONTEXT, Source, whole

#                            GGUF                        Hugging Face   bounds            where it is absent
LLAMA_KEYS = KEYS | {
    "window":         whole("attention.sliding_window",  None,          1, MAX_CONTEXT, None, may_be_off=True),
}  # fmt: skip


def read(source: Source) -> Decoder:
    """Files of llama.cpp pair rotary elements that lie side by side."""
    values = source.values(LLAMA_KEYS)
    layers = windows(source, values.pop("window"), [True] * values["num_layers"])
    is_silu = activation(source, "hidden_act", default="silu")
    return read_decoder(source, values, layers=layers, activation=is_silu, rope_is_interleaved=source.is_gguf)


def build(m: ModelParts) -> StepGraph:
    """Attention and a gated FFN, each added to the residual stream."""
    h = m.embed()
    for layer in range(m.config.num_layers):
        h = m.b.add(h, m.attention(m.norm(h, f"layers.{layer}.attn_norm"), layer))
        h = m.b.add(h, m.gated_ffn(m.norm(h, f"layers.{layer}.ffn_norm"), layer))
    return m.finish(h)


LAYER = (*t.NORMS, *t.ATTENTION, *t.QKV_BIASES, *t.OUT_BIAS, *t.FFN)
LLAMA = Architecture("llama", ("llama", "LlamaForCausalLM"), read, t.TOP, LAYER, build)
