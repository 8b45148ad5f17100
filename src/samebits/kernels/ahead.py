"""Compiling ahead: what launches need is noted, not launched, and built by processes beside this one.

A language whose kernels are compiled at run time takes part in two steps. Its launcher asks `is_noting()` first; where
that holds it calls `note` with a `Build` and launches nothing. Its `Build` says how the kernel is made, in whatever
process, such that a later launch finds it on disk. Tensors have no memory then, so a launcher may look at shapes,
strides, types and alignment, and at nothing else; which GPU is meant, `kernels/triton/lib/devices.py` says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Build(ABC):
    """One kernel to be compiled; can be pickled. Builds with the same `key` make the same files.

    name   the kernel, for people
    key    what tells it from all others
    """

    name: str
    key: str

    @abstractmethod
    def is_built(self) -> bool:
        """Whether a launch would find it on disk."""

    @abstractmethod
    def build(self) -> None:
        """Compiles it and leaves it on disk. Raises whatever the compiler raises."""


_notes: ContextVar[dict[str, Build] | None] = ContextVar("notes", default=None)


def is_noting() -> bool:
    """Whether launches of this thread are to be noted and not made."""
    return _notes.get() is not None


def note(build: Build) -> None:
    """Notes what a launch needs; once, if several need the same."""
    notes = _notes.get()
    if notes is None:
        raise RuntimeError(f"{build.name} is noted where nothing asked for notes")
    notes.setdefault(build.key, build)


@contextmanager
def noting() -> Iterator[dict[str, Build]]:
    """Launches of this thread are noted in the dict, by key, and not made; those of other threads are made."""
    notes: dict[str, Build] = {}
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)
