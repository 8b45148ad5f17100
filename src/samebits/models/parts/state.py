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


@dataclass(frozen=True)
class Slot:
    """One float32 tensor [num_slots, *shape]: a sequence has one row of it, its slot, however long it is.

    is_resumable   it holds the state at the sequence's last boundary, the largest multiple of 16 positions that is
                   computed: a copy of it serves any sequence that starts with the same tokens. Otherwise it holds what
                   came since that boundary, and means nothing at one
    """

    shape: tuple[int, ...]
    is_resumable: bool


def tensor_names(name: str, state: Paged | Slot) -> tuple[str, ...]:
    """The graph's inputs that hold a state."""
    if isinstance(state, Slot):
        return (f"{name}.slots",)
    return (f"{name}.k_cache", f"{name}.v_cache")[: len(state.rows)]


def window_groups(windows: Iterable[int | None]) -> tuple[int | None, ...]:
    """The different windows, None for all positions, the widest first: each has page tables of its own."""
    return tuple(sorted(set(windows), key=lambda w: (w is not None, -(w or 0))))


def tensor_groups(states: Mapping[str, Paged | Slot], windows: Iterable[int | None]) -> list[list[tuple[str, ...]]]:
    """The tensors of the paged states of each window, in the order given; none where no layer keeps pages."""
    paged = {name: state for name, state in states.items() if isinstance(state, Paged)}
    return [[tensor_names(name, s) for name, s in paged.items() if s.window == window] for window in windows]
