"""Values of the sampling fields that a request leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from samebits.core.errors import BadInput

MIN_TEMPERATURE = 1e-4  # of draws: a temperature below it, other than 0, is refused
MIN_TOP_P = 2.0**-16
MAX_TOP_K = 1 << 30
BOUNDS: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 1e6),
    "top_p": (MIN_TOP_P, 1),
    "min_p": (0, 1),
    "repetition_penalty": (1e-3, 1e3),
}
MODEL, NEUTRAL_NAME = "model", "neutral"
CHOICES = (MODEL, NEUTRAL_NAME)


@dataclass(frozen=True)
class SamplingDefaults:
    """Values of the sampling fields that a request leaves out. The class's own defaults cut and change nothing.

    source  where the values come from, for people
    """

    source: str
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def values(self) -> dict[str, float]:
        """Return the values by their names in SamplingParams."""
        return {name: value for name, value in vars(self).items() if name != "source"}


NEUTRAL = SamplingDefaults("neutral")  # draws from the model's own probabilities
FALLBACK = SamplingDefaults("Samebits", temperature=0.7, top_k=40, top_p=0.95)  # of models that state nothing


def check_sampling_defaults(where: str, choice: object) -> None:
    """Raise BadInput if `choice` is not one of CHOICES."""
    if choice not in CHOICES:
        raise BadInput(where, "sampling_defaults", repr(choice), " or ".join(CHOICES))
