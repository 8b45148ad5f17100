"""Granite 3 with experts: Llama with multipliers and experts in place of every feed-forward part.

| router        | the best logits, softmax over those                     |
| shared expert | one in some GGUF files, which granitemoeshared is called |
"""

from __future__ import annotations

from samebits.models import granitehybrid as hybrid
from samebits.models.architecture import Architecture
from samebits.models.parts import tensors as t
from samebits.models.parts.decoder import KEYS, Decoder, Layer
from samebits.models.parts.ignored import Ignored, words
from samebits.models.parts.keys import Source


def read(source: Source) -> Decoder:
    values = source.values(KEYS | hybrid.MULTIPLIERS)
    return hybrid.read_granite(source, values, (Layer(),) * values["num_layers"])


LAYER = (*t.NORMS, *t.ATTENTION, *t.QKV_BIASES, *t.OUT_BIAS)
GRANITEMOE = Architecture(
    "granitemoe",
    ("granitemoe", "GraniteMoeForCausalLM"),
    read,
    t.TOP,
    LAYER,
    hybrid.build,
    kinds=hybrid.FFNS,
    ignored=Ignored(
        hf=words("init_method"),
        hf_only={"normalization_function": ("rmsnorm",), "position_embedding_type": ("rope",)},
    ),
)
