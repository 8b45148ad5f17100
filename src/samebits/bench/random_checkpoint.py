"""A checkpoint that lies in no file: a real model's shape with random weights, for speed alone."""

from __future__ import annotations

from functools import cache

import numpy as np

from samebits.bench.random_weights import random_weight
from samebits.core.format import HostTensor
from samebits.core.protocols import Hyperparameters
from samebits.loaders.naming import shapes


class RandomCheckpoint:
    """A llama in one format, norms of ones. Tensors of one shape are the same, so that any size is made in a moment."""

    architecture = "llama"

    def __init__(self, hyperparameters: Hyperparameters, fmt: str) -> None:
        self.hyperparameters = hyperparameters
        self._shapes = shapes(hyperparameters)
        self._weight = cache(lambda shape: random_weight(fmt, shape, len(shape)))

    def names(self) -> tuple[str, ...]:
        return tuple(self._shapes)

    def tensor(self, name: str) -> HostTensor:
        shape = self._shapes[name]
        return self._weight(shape) if len(shape) > 1 else np.ones(shape, np.float32)

    def release(self, name: str) -> None:
        """Nothing is mapped."""
