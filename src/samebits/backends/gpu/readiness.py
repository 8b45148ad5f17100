"""Which sizes of steps have all their kernels compiled."""

from __future__ import annotations

from typing import Protocol


class Readiness(Protocol):
    """Of buckets; None stands for sizes of no bucket."""

    def is_ready(self, bucket: int | None) -> bool:
        """Whether it is; what it lacks is compiled from now on."""

    def stands_in(self, bucket: int | None) -> bool:
        """Whether it was asked for before and is ready; nothing is begun for it."""

    def wait(self, bucket: int | None) -> None:
        """Returns when it is ready."""


class AlwaysReady:
    """Where nothing is compiled ahead, a launch compiles what it needs."""

    def is_ready(self, _bucket: int | None) -> bool:
        return True

    def stands_in(self, _bucket: int | None) -> bool:
        return True

    def wait(self, _bucket: int | None) -> None:
        pass
