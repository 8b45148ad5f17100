"""Mistral: Llama with a sliding window in every layer. GGUF files call it llama."""

from __future__ import annotations

from samebits.models import llama
from samebits.models.architecture import Architecture
from samebits.models.parts import tensors as t
from samebits.models.parts.decoder import KEYS, Decoder, activation, read_decoder, windows
from samebits.models.parts.ignored import WITHOUT_BIASES, Ignored
from samebits.models.parts.keys import MAX_CONTEXT, Source, whole

#                            GGUF                        Hugging Face       bounds         where it is absent
MISTRAL_KEYS = KEYS | {
    "window":         whole("attention.sliding_window",  "sliding_window",  1, MAX_CONTEXT, 4096, may_be_off=True),
}  # fmt: skip


def read(source: Source) -> Decoder:
    values = source.values(MISTRAL_KEYS)
    layers = windows(source, values.pop("window"), [True] * values["num_layers"])
    return read_decoder(source, values, layers=layers, activation=activation(source, "hidden_act", default="silu"))


IGNORED = Ignored(hf_only=WITHOUT_BIASES)
MISTRAL = Architecture(
    "mistral", ("mistral", "MistralForCausalLM"), read, t.TOP, llama.LAYER, llama.build, ignored=IGNORED
)
