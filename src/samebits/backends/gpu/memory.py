"""Out of memory, in words: what was asked for, and what the device had left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from samebits.core.errors import OutOfMemory


def free_bytes(device: torch.device) -> tuple[int, int]:
    """(free, total) of the device; zeros where it is the host."""
    return torch.cuda.mem_get_info(device) if device.type == "cuda" else (0, 0)


@contextmanager
def explained(device: torch.device, what: str, num_bytes: int | None = None) -> Iterator[None]:
    """Turns torch's error into OutOfMemory; memory that torch keeps for later goes back first, so others can go on."""
    try:
        yield
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        free, total = free_bytes(device)
        asked = f" of {num_bytes / 2**20:,.0f} MiB" if num_bytes is not None else ""
        raise OutOfMemory(
            f"{what}{asked} does not fit: {free / 2**20:,.0f} of {total / 2**20:,.0f} MiB are free on {device}"
        ) from None
