"""A checkpoint that lies in no file: a real model's shape with random weights, for speed alone."""

from __future__ import annotations

from functools import cache

import numpy as np

from samebits.bench.random_weights import random_weight
from samebits.bench.shapes import architecture_of
from samebits.core.format import HostTensor
from samebits.core.shapes import TensorSpec
from samebits.models.architecture import Stored
from samebits.models.parts.decoder import Decoder


class RandomCheckpoint:
    """A shape in one format, norms of ones. Tensors of one shape are the same, so that any size is made in a moment."""

    def __init__(self, config: Decoder, fmt: str) -> None:
        self.config, self._format, self.architecture = config, fmt, architecture_of(config)
        self._stored = self.architecture.tensors(config, is_gguf=True)
        self._weight = cache(lambda fmt, shape: random_weight(fmt, shape, len(shape)))

    def spec(self, name: str) -> TensorSpec | None:
        stored = self._stored.get(name)
        return None if stored is None else TensorSpec(stored.shape, stored_format(stored, self._format))

    def tensor(self, name: str) -> HostTensor:
        stored = self._stored[name]
        return (
            plain(name, stored)
            if len(stored.shape) == 1
            else self._weight(stored_format(stored, self._format), stored.shape)
        )

    def release(self, name: str) -> None:
        """Nothing is mapped."""


def stored_format(stored: Stored, fmt: str) -> str:
    """Rows, routers and what ops read as float32 are that, all else is in the format; but MXFP4 is for experts alone,
    and what lies beside them is in Q8_0."""
    if len(stored.needed) == 1 or stored.is_f32 or stored.name.endswith("ffn_gate_inp.weight"):
        return "f32"
    return fmt if fmt != "mxfp4" or "_exps." in stored.name else "q8_0"


def plain(name: str, stored: Stored) -> np.ndarray:
    """Ones; and -1 for a decay, whose states would grow otherwise."""
    return np.full(stored.needed, -1 if name.endswith(".decay") else 1, np.float32)
