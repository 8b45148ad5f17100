"""The number of layers that -ngl puts on a GPU: all of them or none."""

from __future__ import annotations

from samebits.core.errors import BadInput, as_given
from samebits.loaders.cache import resolve
from samebits.loaders.obtain import is_at_hand

ALL_LAYERS = 99  # guides write 99 or 999 for "all", whatever the model
MAX_DIGITS = 9


def all_or_none(text: str, model: str) -> str:
    """Return "0" or "all" for what -ngl says: a number that is 99 or at least the model's layers means all.

    Raise BadInput for other numbers, since layers cannot be split between devices, and for what is no number.
    """
    if text in ("0", "all"):
        return text
    is_number = text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
    least = ALL_LAYERS
    if is_number and int(text) < ALL_LAYERS and is_at_hand(model):
        from samebits.models.checkpoint import open_checkpoint  # only a small number asks for it

        least = min(least, open_checkpoint(resolve(model)).config.num_layers)
    if not is_number or int(text) < least:
        needed = f"0, all or at least {least}: layers cannot be split between devices yet"
        raise BadInput("model", "-ngl", as_given(text[:20]), needed)
    return "all"
