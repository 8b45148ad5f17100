"""What guesses at a sequence's next tokens is, and what it is told."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from samebits.engine.sampling import SamplingParams


@dataclass(frozen=True, eq=False)
class Wanted:
    """Guesses are wanted for one sequence.

    key      the same in every step of the sequence, until `forget`
    tokens   int32 [n]: prompt and answer so far, not to be written to nor kept: it changes with the next step
    most     guesses that can be used, 1 or more
    """

    key: Hashable
    tokens: np.ndarray
    most: int
    params: SamplingParams
    sample_index: int


class Drafter(Protocol):
    """Guesses what sequences draw next. Whatever it says, answers are the same; it only makes them faster or slower."""

    def propose(self, wanted: Sequence[Wanted]) -> list[np.ndarray]:
        """Token ids, int [0 .. most], for each. What is raised here ends no request: nothing is guessed then."""

    def forget(self, key: Hashable) -> None:
        """The sequence has ended, or never was asked about."""
