"""How a kernel refuses a value: it stores a number in one word of device memory, which is read when the host waits.

Nothing is thrown inside a step, and nothing waits: `fault` gives a reason its number when a kernel file is imported,
a kernel stores that number where it meets such a value, `raise_if_any` turns it into BadInput and clears it.
"""

from __future__ import annotations

from functools import cache

import torch

from samebits.core.errors import BadInput

_REASONS: list[tuple[str, str, str, str]] = []


def fault(where: str, argument: str, given: str, needed: str) -> int:
    """The number of a reason, 1 or more."""
    reason = (where, argument, given, needed)
    if reason not in _REASONS:
        _REASONS.append(reason)
    return _REASONS.index(reason) + 1


@cache
def fault_word(device: torch.device) -> torch.Tensor:
    """int32 [1]: 0 while all is well. Kernels take its pointer."""
    return torch.zeros(1, dtype=torch.int32, device=device)


def raise_if_any(device: torch.device) -> None:
    """BadInput where a kernel stored a reason; waits for the device."""
    word = fault_word(device)
    number = int(word.item())
    if number:
        word.zero_()
        raise BadInput(*_REASONS[number - 1])
