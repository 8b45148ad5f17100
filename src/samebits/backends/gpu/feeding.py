"""A step's host arrays on their way to the device: one staging buffer, one copy, padded where a graph is replayed.

Padding: -1 for ids, positions, batch indices and rows, 0 for lengths, the last value for the ends of ranges. Kernels
leave such rows at zero and never read a live one for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from samebits.core.errors import BadInput
from samebits.core.shapes import Sym, TensorSpec
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
    """Where an input lies in the buffer, in words, and how many of them it takes when padded."""

    start: int
    num_words: int
    shape: tuple[int, ...]


class Feed:
    """Two host buffers in turn, so that filling one never waits for the copy of the other."""

    def __init__(self, specs: Mapping[str, TensorSpec], device: torch.device) -> None:
        self._specs = dict(sorted(specs.items(), key=lambda item: item[0] == UNPADDED))
        words = sum(self._upper_words(spec) + ALIGN for spec in self._specs.values())
        self._device_words = torch.empty(words, dtype=torch.int32, device=device)
        pins = device.type == "cuda"
        self._staged = [torch.empty(words, dtype=torch.int32, pin_memory=pins) for _ in range(2)]
        self._host = [staged.numpy() for staged in self._staged]
        self._turn = 0

    @staticmethod
    def _upper_words(spec: TensorSpec) -> int:
        return int(np.prod([d.upper if isinstance(d, Sym) else d for d in spec.shape], dtype=np.int64))

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

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Field]:
        """Where everything lies for these sizes of the symbols."""
        fields, start = {}, 0
        for name, spec in self._specs.items():
            shape = tuple(d.value(sizes) if isinstance(d, Sym) else d for d in spec.shape)
            count = int(np.prod(shape, dtype=np.int64))
            fields[name] = Field(start, count, shape)
            start += -(-count // ALIGN) * ALIGN
        return fields

    def send(self, arrays: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> dict[str, torch.Tensor]:
        """Copies the arrays, padded to their fields; returns the device tensors. Does not wait."""
        self._turn ^= 1
        host, end = self._host[self._turn], 0
        for name, field in fields.items():
            array = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.int32)
            stop = field.start + len(array)
            host[field.start : stop] = array
            if name != UNPADDED:
                is_range = isinstance(dim := self._specs[name].shape[0], Sym) and dim.plus == 1
                host[stop : field.start + field.num_words] = array[-1] if is_range else PADDING.get(name, -1)
                stop = field.start + field.num_words
            end = stop
        self._device_words[:end].copy_(self._staged[self._turn][:end], non_blocking=True)
        return {name: self._tensor(name, field) for name, field in fields.items()}

    def _tensor(self, name: str, field: Field) -> torch.Tensor:
        words = self._device_words[field.start : field.start + field.num_words]
        return words.view(DTYPES[self._specs[name].format]).view(field.shape)
