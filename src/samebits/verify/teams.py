"""The numbers of host threads on which a call must have the same bits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import cycle
from random import Random

SMALL_TEAMS, LARGE_TEAMS = (2, 3), (8, 16)  # large ones have more threads than rows, or than many machines have cores


def team_sizes() -> tuple[int, ...]:
    """Return the numbers of threads to try beside one: a few, the machine's own and large ones, in rising order."""
    return tuple(sorted({*SMALL_TEAMS, *LARGE_TEAMS, max(2, os.cpu_count() or 1)}))


def drawn_teams(name: str, seed: int) -> Iterator[int]:
    """Yield team sizes without end, each as often as any other, in an order that the name and the seed draw."""
    teams = team_sizes()
    return cycle(Random(f"{seed}/{name}/teams").sample(teams, len(teams)))
