"""A step's host arrays on their way to the device: one staging buffer, one copy, padded where a graph is replayed.

What stands behind an array's end is declared with the step's inputs, core/step.py. Kernels leave such rows at zero and
never read a live one for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from samebits.backends.gpu.readiness import AlwaysReady, Readiness
from samebits.core.errors import BadInput
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.step import PAGES, declared
from samebits.kernels.triton.lib.tensors import DTYPES

ALIGN = 4  # words: every array starts where a 16-byte load can
COPIED = 256  # words: a copy takes a multiple
MOST_SHAPES = 1024
UNPADDED = PAGES  # its end is known from kv_indptr; it lies last, so only what is used travels
ALWAYS = AlwaysReady()
BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def bucket_of(num_tokens: int, readiness: Readiness = ALWAYS) -> int | None:
    """The smallest bucket that holds so many tokens; where it is not ready, one that stands in for it, if any can.

    None for a step too large to be captured.
    """
    if num_tokens > BUCKETS[-1]:
        return None
    first, *larger = (bucket for bucket in BUCKETS if bucket >= num_tokens)
    return first if readiness.is_ready(first) else next(filter(readiness.stands_in, larger), first)


def padded_sizes(specs: Iterable[TensorSpec], bucket: int) -> dict[str, int]:
    """Sizes of the symbols in a bucket: no step has more sequences, or rows asked for, than tokens."""
    limits = {d.name: d.limit for s in specs for d in s.shape if isinstance(d, Sym)}
    return {name: limit if name == "NI" else min(limit, bucket) for name, limit in limits.items()}


@dataclass(frozen=True)
class Layout:
    """Where the inputs lie for some sizes of the symbols: first words, device tensors, and where all of them end."""

    starts: dict[str, int]
    tensors: dict[str, torch.Tensor]
    stop: int


@dataclass(frozen=True)
class FeedShape:
    """What steps whose arrays have the same lengths share.

    dims      the symbols' values; UNPADDED may have another in every step
    bucket    how many tokens the step is padded to; None for a step that is not
    gaps      what follows each array: words, or how many repetitions of its last one
    is_lasting   False for a bucket that only stands in for a smaller one, whose kernels are being compiled
    """

    dims: dict[str, int]
    bucket: int | None
    layout: Layout
    gaps: tuple[tuple[str, np.ndarray | int], ...]
    is_lasting: bool = True


class Feed:
    """Two host buffers in turn, so that filling one never waits for the copy of the other.

    A buffer is filled again only when its last copy has ended: a device that is two steps behind has not read it yet.
    A step's time on the host counts, and finds its caches cold: what can be kept from step to step is.
    """

    def __init__(
        self, specs: Mapping[str, TensorSpec], device: torch.device, pads: bool, bucket_for: Callable[[int], int | None]
    ) -> None:
        """pads: steps are padded to a bucket of tokens, symbol T; bucket_for: to which, now."""
        self._specs = dict(sorted(specs.items(), key=lambda item: item[0] == UNPADDED))
        self._pads, self._bucket_for = pads, bucket_for
        words = sum(spec.num_elements + ALIGN for spec in self._specs.values()) + COPIED
        self._device_words = torch.empty(words, dtype=torch.int32, device=device)
        pins = device.type == "cuda"
        self._staged = [torch.empty(words, dtype=torch.int32, pin_memory=pins) for _ in range(2)]
        self._host = [staged.numpy() for staged in self._staged]
        self._copied = [torch.cuda.Event(blocking=True) for _ in self._staged] if pins else []
        self._turn = 0
        self._fixed = [name for name in self._specs if name != UNPADDED]
        self._shapes: dict[tuple[int, ...], FeedShape] = {}
        self._layouts: dict[int, Layout] = {}  # of the buckets: captured launches read there
        self._copies: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}

    def send(self, arrays: Mapping[str, np.ndarray]) -> tuple[FeedShape, dict[str, int]]:
        """Copy the arrays, padded, and return the step's shape and all its symbols.

        Waits only if the device is two steps behind. Raise BadInput for an array longer than its bound.
        """
        lengths = tuple([len(arrays[name]) for name in self._fixed])
        shape = self._shapes.get(lengths)
        if shape is None:
            shape = self._shape_of(arrays)
            if len(self._shapes) >= MOST_SHAPES:
                self._shapes.clear()
            if shape.is_lasting and (
                shape.bucket or UNPADDED not in self._specs
            ):  # else its layout depends on that too
                self._shapes[lengths] = shape
        pieces: list[np.ndarray] = []
        for name, gap in shape.gaps:
            words = _words(arrays[name])
            pieces += (words, np.full(gap, words[-1], np.int32) if isinstance(gap, int) else gap)
        dims, end = shape.dims, shape.layout.stop
        if UNPADDED in self._specs:
            pieces.append(_words(arrays[UNPADDED]))
            dims, end = dims | self._size(UNPADDED, arrays), shape.layout.starts[UNPADDED] + len(pieces[-1])
        self._turn ^= 1
        if self._copied:
            self._copied[self._turn].synchronize()
        np.concatenate(pieces, out=self._host[self._turn][:end])
        target, source = self._copy(-(-end // COPIED) * COPIED)
        target.copy_(source, non_blocking=True)
        if self._copied:
            self._copied[self._turn].record()
        return shape, dims

    def _copy(self, num_words: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The device's words and this turn's staged ones."""
        key = (self._turn, num_words)
        if key not in self._copies:
            self._copies[key] = self._device_words[:num_words], self._staged[self._turn][:num_words]
        return self._copies[key]

    def _size(self, name: str, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
        """The symbol of an array's length, if it has one."""
        dim, length = self._specs[name].shape[0], len(arrays[name])
        if not isinstance(dim, Sym):
            return {}
        if length > dim.upper:
            raise BadInput("step", name, f"{length} entries", f"at most {dim.upper}")
        return {dim.name: (length - dim.plus) // dim.factor}

    def _shape_of(self, arrays: Mapping[str, np.ndarray]) -> FeedShape:
        dims = {symbol: size for name in self._specs for symbol, size in self._size(name, arrays).items()}
        bucket = self._bucket_for(dims["T"]) if self._pads and "T" in dims else None
        if bucket is None:
            layout = self._layout(dims)
        else:
            layout = self._layouts.get(bucket) or self._layout(padded_sizes(self._specs.values(), bucket))
            self._layouts[bucket] = layout
        gaps: list[tuple[str, np.ndarray | int]] = []
        starts = [*layout.starts.values(), layout.stop]
        for name, start, stop in zip(self._fixed, starts, starts[1:], strict=False):
            missing, padding = stop - start - len(_words(arrays[name])), _padding(name)
            gaps.append((name, missing if isinstance(padding, str) else np.full(missing, padding, np.int32)))
        return FeedShape(dims, bucket, layout, tuple(gaps), bucket is None or bucket == bucket_of(dims["T"]))

    def _layout(self, sizes: Mapping[str, int]) -> Layout:
        starts, tensors, start = {}, {}, 0
        for name, spec in self._specs.items():
            shape = spec.at(sizes).upper_shape
            stop = start + math.prod(shape)
            starts[name] = start
            tensors[name] = self._device_words[start:stop].view(DTYPES[spec.format]).view(shape)
            start = -(-stop // ALIGN) * ALIGN
        return Layout(starts, tensors, start)


def _padding(name: str) -> int | str:
    """What is declared; -1 for an array that is no model's."""
    found = declared(name)
    return -1 if found is None else found.padding


def _words(array: np.ndarray) -> np.ndarray:
    """A contiguous array of 32-bit numbers as int32 [n]."""
    return array if array.dtype == np.int32 and array.ndim == 1 else array.reshape(-1).view(np.int32)
