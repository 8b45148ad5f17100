"""How a kernel refuses a value: it stores a number in one word of device memory, which is read when the host waits.

Nothing is thrown inside a step, and nothing waits: `fault` gives a reason its number when a kernel file is imported,
a kernel stores that number where it meets such a value, `raise_if_any` turns it into BadInput and clears it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch

from samebits.core.errors import BadInput

ALIGN = 4  # words, so that every pointer is a multiple of 16 bytes
_REASONS: list[tuple[str, str, str, str]] = []


def fault(where: str, argument: str, given: str, needed: str) -> int:
    """The number of a reason, 1 or more."""
    reason = (where, argument, given, needed)
    if reason not in _REASONS:
        _REASONS.append(reason)
    return _REASONS.index(reason) + 1


@cache
def fault_words(device: torch.device) -> torch.Tensor:
    """int32 [2 * ALIGN]: the words of a device, that of sampling behind the other."""
    return torch.zeros(2 * ALIGN, dtype=torch.int32, device=device)


@cache
def fault_word(device: torch.device, of_sampling: bool = False) -> torch.Tensor:
    """int32 [1]: 0 while all is well. Kernels take its pointer.

    Sampling has a word of its own: a row without a token must not hide what the model refused before.
    """
    start = ALIGN if of_sampling else 0
    return fault_words(device)[start : start + 1]


def raise_if_any(device: torch.device) -> None:
    """BadInput where a kernel stored a reason, the model's before sampling's; waits for the device."""
    raise_if_noted(fault_words(device).tolist(), device)


def raise_if_noted(words: Sequence[int], device: torch.device) -> None:
    """The same, of a host copy of the words."""
    number = words[0] or words[ALIGN]
    if number:
        fault_words(device).zero_()
        raise BadInput(*_REASONS[number - 1])
