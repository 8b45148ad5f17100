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
            raise _unknown(text) from None

    @classmethod
    def asked(cls, text: str) -> Tier:
        """Return the tier that a model is asked to keep. Raise BadInput for "none" too, which promises nothing."""
        if tier := cls.parse(text):
            return tier
        raise _unknown(text)

    @property
    def label(self) -> str:
        return self.name.lower()


def _unknown(text: object) -> BadInput:
    names = ", ".join(tier.label for tier in Tier if tier)
    return BadInput("numerics", "numerics tier", repr(text), f"one of {names}")
