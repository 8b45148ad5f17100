"""Which layers of a hybrid do what, as the two kinds of files say it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from samebits.loaders.fields import shown
from samebits.models.parts.decoder import Layer
from samebits.models.parts.keys import Source

# Names of Hugging Face's, past and present
KINDS = {
    "full_attention": "attention",
    "attention": "attention",
    "linear_attention": "recurrence",
    "mamba": "recurrence",
    "conv": "recurrence",
}


def stated_kinds(
    source: Source, key: str, num_layers: int, known: Mapping[str, str] = KINDS, key_too: str | None = None
) -> list[str] | None:
    """Return the kinds that a config.json lists under a key of two spellings, of those that are `known` by its names;
    None if it lists none."""
    key = source.spelling(key, key_too)
    types = None if source.is_gguf else source.fields.get(key)
    if types is None:
        return None
    is_list = isinstance(types, list) and len(types) == num_layers
    if not is_list or any(not isinstance(t, str) or t not in known for t in types):
        raise source.fields.fail(key, types, f"{num_layers} of {', '.join(known)}")
    return [known[t] for t in types]


def layers_of(kinds: list[str], rope: str | None) -> tuple[Layer, ...]:
    """Layers of these kinds, whose attention looks back over everything."""
    return tuple(Layer(rope=rope, kind=kind) for kind in kinds)


def by_layer(source: Source, gguf: str, num_layers: int, high: int) -> list[int]:
    """A number for each layer, of a GGUF file's array, or one for all."""
    value = source.fields.get(gguf)
    if not isinstance(value, np.ndarray):
        return [source.fields.integer(gguf, 0, high)] * num_layers
    is_whole = value.dtype.kind in "iu" and value.shape == (num_layers,)
    if not is_whole or not (value.min() >= 0 and value.max() <= high):
        raise source.fields.fail(gguf, shown(value), f"{num_layers} integers from 0 to {high}")
    return [int(number) for number in value]
