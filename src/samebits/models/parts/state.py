"""What a model keeps of a sequence between steps, as it declares it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Rows = tuple[int, ...]  # heads and elements of each, or elements alone


@dataclass(frozen=True)
class Paged:
    """Pages to which every token of a sequence adds a row.

    rows     of keys and of values; or of keys alone, without heads, where values are the first elements of keys
    window   positions that a token looks back over, itself among them; None for all
    """

    rows: tuple[Rows, Rows] | tuple[Rows]
    window: int | None = None


def tensor_names(name: str, state: Paged) -> tuple[str, ...]:
    """The graph's inputs that hold a state."""
    return (f"{name}.k_cache", f"{name}.v_cache")[: len(state.rows)]


def window_groups(windows: Iterable[int | None]) -> tuple[int | None, ...]:
    """The different windows, None for all positions, the widest first: each has page tables of its own."""
    return tuple(sorted(set(windows), key=lambda w: (w is not None, -(w or 0))))


def tensor_groups(states: Mapping[str, Paged]) -> list[list[tuple[str, ...]]]:
    """The tensors of the states of each window, in the order of `window_groups`."""
    groups = window_groups(state.window for state in states.values())
    return [[tensor_names(name, s) for name, s in states.items() if s.window == window] for window in groups]
