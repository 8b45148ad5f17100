"""How many tokens to guess, from how many guesses were right so far."""

from __future__ import annotations

from functools import cache

PRIOR, PRIOR_WEIGHT = 0.8, 1.0  # share of right guesses before any was seen, and how many guesses that is worth
MEMORY = 0.85  # of what was seen before a step with guesses, what still counts after it
FORGETTING = 0.99  # and after a step without
LEVELS = 64


@cache
def best_length(level: int, costs: tuple[float, ...]) -> int:
    """Guesses that give the most tokens for the time of a step, where a guess is right with chance level / LEVELS.

    costs   times of steps with 0, 1, 2 .. guesses
    """
    chance, expected, right = level / LEVELS, 0.0, 1.0
    rates = []
    for cost in costs:
        expected += right
        right *= chance
        rates.append(expected / cost)
    return rates.index(max(rates))


class Acceptance:
    """What one sequence's guesses were worth: numbers of right and of wrong ones, the older ones counted less."""

    __slots__ = ("_right", "_wrong")

    def __init__(self) -> None:
        self._right = self._wrong = 0.0

    @property
    def chance(self) -> float:
        """That a guess is right, if those before it are."""
        return (self._right + PRIOR * PRIOR_WEIGHT) / (self._right + self._wrong + PRIOR_WEIGHT)

    def wish(self, costs: tuple[float, ...]) -> int:
        """How many guesses to ask for, where steps with 0, 1, 2 .. of them take such times."""
        return best_length(round(self.chance * LEVELS), costs)

    def see(self, num_drafted: int, num_right: int) -> None:
        """A step with so many guesses; those behind the first wrong one say nothing."""
        memory = MEMORY if num_drafted else FORGETTING
        self._right = self._right * memory + num_right
        self._wrong = self._wrong * memory + (num_right < num_drafted)
