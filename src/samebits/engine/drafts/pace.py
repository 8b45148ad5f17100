"""How far guessing goes on a kind of device: what a further token of a step costs there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """max_draft     guesses per sequence and step
    cost          time of a guessed token as a share of that of a step without: dearer guesses must be better
    batch_tokens  decodes and guesses of a step together, beyond which it costs what its tokens do
    """

    max_draft: int
    cost: float
    batch_tokens: int


HOST = Pace(max_draft=7, cost=0.3, batch_tokens=8)  # kernels on a few cores soon have more to compute than to read
DEVICE = Pace(max_draft=15, cost=0.03, batch_tokens=64)  # weights are read once for a tile of rows
HOSTS = ("cpu", "reference")


def pace_of(backend: str) -> Pace:
    """That of a backend, by its name."""
    return HOST if backend in HOSTS else DEVICE
