"""Python's collector of reference cycles, out of the way of work that makes much and drops little."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No search for cycles in this block: while a model loads, each would go through all that was made so far."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def leave_out_what_is_there() -> None:
    """Exclude every object of the process from all later searches for cycles: each holds up every thread meanwhile."""
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # what is left at the end would be reported as a leak of native objects
