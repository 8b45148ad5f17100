"""Runs a property on generated inputs for some time: what the scripts for requests and schemas share."""

from __future__ import annotations

import argparse
import random
import time
import traceback
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

EXAMPLES_A_ROUND = 200


def drive(name: str, inputs: SearchStrategy[Any], check: Callable[[Any], None]) -> int:
    """Checks inputs until `--seconds` are over; the status to exit with.

    What `check` raises is a finding: it is printed with the smallest input that still gives it.
    """
    parser = argparse.ArgumentParser(description=f"{name}: checks generated inputs until the time is over")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to go on")
    parser.add_argument("--seed", type=int, help="of the first round; drawn if absent, and printed")
    options = parser.parse_args()
    first = random.randrange(1 << 30) if options.seed is None else options.seed
    print(f"{name}: seed {first}", flush=True)
    end, count = time.monotonic() + options.seconds, 0

    def counting(value: Any) -> None:
        nonlocal count
        if time.monotonic() < end:
            count += 1
            check(value)

    quiet = settings(
        max_examples=EXAMPLES_A_ROUND,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    number = first
    while time.monotonic() < end:
        try:
            seed(number)(quiet(given(inputs)(counting)))()
        except Exception:
            traceback.print_exc()
            print(f"{name}: {count} inputs, 1 finding (--seed {number})")
            return 1
        number += 1
    print(f"{name}: {count} inputs, 0 findings")
    return 0
