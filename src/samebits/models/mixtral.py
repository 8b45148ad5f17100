"""Mixtral: Mistral with experts in place of every feed-forward part. GGUF files call it llama.

| router        | softmax over all, the best, divided by their sum |
| shared expert | none                                             |
"""

from __future__ import annotations

from samebits.models import llama
from samebits.models.architecture import Architecture
from samebits.models.parts import mixture
from samebits.models.parts import tensors as t
from samebits.models.parts.decoder import KEYS, Decoder, activation, read_decoder, rotary_dims, windows
from samebits.models.parts.ignored import WITHOUT_BIASES, Ignored
from samebits.models.parts.keys import MAX_CONTEXT, REQUIRED, Source, number, whole
from samebits.models.parts.rope import ROPE_TABLE, HfRotation, read_rope

ROTATION = HfRotation(theta=1e6)

#                            GGUF                                Hugging Face      bounds          where it is absent
MIXTRAL_KEYS = KEYS | {
    "rms_eps":        number("attention.layer_norm_rms_epsilon", "rms_norm_eps",   1e-12, 1.0, 1e-5,
                             gguf_default=REQUIRED),
    "window":         whole("attention.sliding_window",          "sliding_window", 1, MAX_CONTEXT, None,
                            may_be_off=True),
}  # fmt: skip


def read(source: Source) -> Decoder:
    values = source.values(MIXTRAL_KEYS)
    layers = windows(source, values.pop("window"), [True] * values["num_layers"])
    dims = rotary_dims(source, values["head_size"])
    experts = mixture.read_mixture(source, llama.MIXTRAL_KEYS, "softmax")
    return read_decoder(
        source,
        values,
        layers=mixture.with_experts(layers, experts),
        ropes={ROPE_TABLE: read_rope(source, dims, values["context_len"], ROTATION)},
        activation=activation(source, "hidden_act", default="silu"),
        mixture=experts,
    )


MIXTRAL = Architecture(
    "mixtral",
    ("mixtral", "MixtralForCausalLM"),
    read,
    t.TOP,
    llama.BLOCK,
    llama.build,
    kinds=llama.FFNS,
    ignored=Ignored(hf_only=WITHOUT_BIASES),
)
