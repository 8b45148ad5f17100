"""The tiers of numerics, weakest first, so that `>=` reads as "promises at least"."""

from __future__ import annotations

from enum import IntEnum

from samebits.core.errors import BadInput


class Tier(IntEnum):
    NONE = 0  # computes nothing: the null backend
    FAST = 1  # within bounds that follow from a call's sums
    INVARIANT = 2  # a row's bits do not depend on the rest of the batch
    PORTABLE = 3  # the reference's bits, on every backend

    @classmethod
    def parse(cls, text: str | Tier) -> Tier:
        """The tier of that name; BadInput when there is none."""
        if isinstance(text, Tier):
            return text
        try:
            return cls[text.upper()]
        except (KeyError, AttributeError):
            names = ", ".join(t.label for t in cls if t)
            raise BadInput("numerics", "numerics tier", repr(text), f"one of {names}") from None

    @property
    def label(self) -> str:
        return self.name.lower()
