"""Faults at every line of an engine's steps: `python tests/engine/interrupt_sweep.py [EVERY] [FIRST]`. It takes long.

EVERY and FIRST say which lines are tried: every fourth from the third on, say. Each one gets an interrupt, a shortage
of memory and a fault, at its first run and at a random one.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import tempfile
import traceback
from pathlib import Path

os.environ["SAMEBITS_CHECK_MATCHES"] = "1"
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "loaders")]

from random_tiny import write_random_tiny  # noqa: E402
from scenes import Lab  # noqa: E402
from test_interrupts import ERRORS, KINDS, Kind, places_of, try_place  # noqa: E402
from tiny_hybrid import open_hybrid  # noqa: E402

from samebits.backends.discovery import default_name, get  # noqa: E402
from samebits.models.parts import Limits  # noqa: E402


def sweep(kind: Kind, lab: Lab, every: int, first: int) -> int:
    """Try lines of one kind of engine; print a line, and the first three failures. Return how many tries failed."""
    lab.runner.backend.runs_ahead = kind.runs_ahead
    places, draw = places_of(kind, lab), random.Random(first)
    num_tries = num_wrong = num_failed = 0
    for place, count in places[first::every]:
        for occurrence in sorted({1, draw.randint(1, count)}):
            for error in ERRORS:
                num_tries += 1
                try:
                    num_failed += try_place(kind, lab, place, occurrence, error())
                except Exception as found:
                    num_wrong += 1
                    if num_wrong <= 3:
                        print(f"{kind.name}: {place[0]}:{place[1]}, run {occurrence}, {error()!r}")
                        traceback.print_exception(found)
    print(f"{kind.name}: {len(places)} lines, {num_tries} tries, {num_failed} requests failed, {num_wrong} wrong")
    return num_wrong


def main() -> None:
    every, first = (int(text) for text in [*sys.argv[1:], "1", "0"][:2])
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        path, found = write_random_tiny(Path(folder) / "random.gguf"), get(default_name())
        limits = Limits(600, 16, 128, max_positions=200)
        labs = {False: Lab(path, found, limits), True: Lab(open_hybrid(path), found, limits)}
        sys.exit(sum(sweep(kind, labs[kind.is_hybrid], every, first) for kind in KINDS) > 0)


if __name__ == "__main__":
    main()
