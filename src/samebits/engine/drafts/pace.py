"""How far guessing goes on a kind of device: what a further token of a step costs there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """What steps with guesses take.

    costs         times of steps with 0, 1, 2 .. guesses for a sequence, as multiples of the first; never more guesses
    batch_tokens  decodes and guesses of a step together, beyond which it costs what its tokens do
    """

    costs: tuple[float, ...]
    batch_tokens: int


# On two Neoverse cores: kernels soon have more to compute than to read, four rows at a time.
HOST = Pace((1.0, 1.4, 2.05, 2.15, 2.8, 3.2, 3.6, 4.0), batch_tokens=8)
# On an H200, 7.4B in Q4_0, portable: a second row needs other kernels than one, further rows cost next to nothing.
DEVICE = Pace(
    (1.0, 2.1, 2.12, 2.14, 2.5, 2.5, 2.6, 2.65, 2.65, 2.65, 2.7, 2.74, 2.75, 2.76, 2.76, 2.76), batch_tokens=64
)
HOSTS = ("cpu", "reference")


def pace_of(backend: str) -> Pace:
    """That of a backend, by its name."""
    return HOST if backend in HOSTS else DEVICE
