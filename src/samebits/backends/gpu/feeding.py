"""A step's host arrays on their way to the device: one staging buffer, one copy, padded where a graph is replayed.

Padding: -1 for ids, positions, batch indices and rows, 0 for lengths, the last value for the ends of ranges. Kernels
leave such rows at zero and never read a live one for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from samebits.core.errors import BadInput
from samebits.core.shapes import Sym, TensorSpec, upper
from samebits.kernels.triton.tensors import DTYPES

ALIGN = 4  # words: every array starts where a 16-byte load can
PADDING = {"kv_last_page_len": 0}
UNPADDED = "kv_indices"  # its end is known from kv_indptr; it lies last, so only what is used travels
BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def bucket_of(num_tokens: int) -> int | None:
    """The smallest bucket that holds so many tokens; None for a step too large to be captured."""
    return next((bucket for bucket in BUCKETS if bucket >= num_tokens), None)


@dataclass(frozen=True)
class Field:
    """Where an input lies in the buffer, in words, padding included.

    host      its words in either host buffer
    padding   what follows the array: a value, or None for its own last one
    is_cut    nothing follows it
    """

    start: int
    host: tuple[np.ndarray, ...]
    padding: int | None
    is_cut: bool


@dataclass(frozen=True)
class Layout:
    """The inputs' places for some sizes of the symbols, and the device tensors there."""

    fields: dict[str, Field]
    tensors: dict[str, torch.Tensor]


class Feed:
    """Two host buffers in turn, so that filling one never waits for the copy of the other."""

    def __init__(self, specs: Mapping[str, TensorSpec], device: torch.device) -> None:
        self._specs = dict(sorted(specs.items(), key=lambda item: item[0] == UNPADDED))
        words = sum(math.prod(upper(d) for d in spec.shape) + ALIGN for spec in self._specs.values())
        self._device_words = torch.empty(words, dtype=torch.int32, device=device)
        pins = device.type == "cuda"
        self._staged = [torch.empty(words, dtype=torch.int32, pin_memory=pins) for _ in range(2)]
        self._host = [staged.numpy() for staged in self._staged]
        self._turn = 0

    def dims(self, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
        """The symbols' values in this step; BadInput for an array longer than its bound."""
        dims: dict[str, int] = {}
        for name, spec in self._specs.items():
            dim, length = spec.shape[0], len(arrays[name])
            if isinstance(dim, Sym):
                if length > dim.upper:
                    raise BadInput("step", name, f"{length} entries", f"at most {dim.upper}")
                dims[dim.name] = (length - dim.plus) // dim.factor
        return dims

    def layout(self, sizes: Mapping[str, int]) -> Layout:
        """Where everything lies for these sizes of the symbols."""
        fields, tensors, start = {}, {}, 0
        for name, spec in self._specs.items():
            shape = tuple(d.value(sizes) if isinstance(d, Sym) else d for d in spec.shape)
            stop = start + math.prod(shape)
            is_range = isinstance(spec.shape[0], Sym) and spec.shape[0].plus == 1
            host = tuple(words[start:stop] for words in self._host)
            fields[name] = Field(start, host, None if is_range else PADDING.get(name, -1), name == UNPADDED)
            tensors[name] = self._device_words[start:stop].view(DTYPES[spec.format]).view(shape)
            start = -(-stop // ALIGN) * ALIGN
        return Layout(fields, tensors)

    def send(self, arrays: Mapping[str, np.ndarray], layout: Layout) -> None:
        """Copies contiguous arrays, padded to their fields, into the layout's tensors. Does not wait."""
        self._turn ^= 1
        end = 0
        for name, field in layout.fields.items():
            array, words = arrays[name].reshape(-1).view(np.int32), field.host[self._turn]
            count = len(array)
            words[:count] = array
            if count < len(words) and not field.is_cut:
                words[count:] = array[-1] if field.padding is None else field.padding
                count = len(words)
            end = field.start + count
        self._device_words[:end].copy_(self._staged[self._turn][:end], non_blocking=True)
