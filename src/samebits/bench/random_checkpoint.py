"""A checkpoint that lies in no file: a real model's shape with random weights, for speed alone."""

from __future__ import annotations

from functools import cache

import numpy as np

from samebits.bench.random_weights import random_weight
from samebits.core.format import HostTensor
from samebits.core.shapes import TensorSpec
from samebits.models.llama import LLAMA
from samebits.models.parts.decoder import Decoder


class RandomCheckpoint:
    """A llama in one format, norms of ones. Tensors of one shape are the same, so that any size is made in a moment."""

    architecture = LLAMA

    def __init__(self, config: Decoder, fmt: str) -> None:
        self.config, self._format = config, fmt
        self._shapes = LLAMA.shapes(config)
        self._weight = cache(lambda shape: random_weight(fmt, shape, len(shape)))

    def spec(self, name: str) -> TensorSpec | None:
        shape = self._shapes.get(name)
        return None if shape is None else TensorSpec(shape, self._format if len(shape) > 1 else "f32")

    def tensor(self, name: str) -> HostTensor:
        shape = self._shapes[name]
        return self._weight(shape) if len(shape) > 1 else np.ones(shape, np.float32)

    def release(self, name: str) -> None:
        """Nothing is mapped."""
