"""The devices that this machine code runs on."""

from __future__ import annotations

from functools import cache

import torch

from samebits.core.errors import Unavailable
from samebits.kernels.cuda.nvrtc import library
from samebits.kernels.triton.lib.devices import PTX_HERE, facts_of

ARCH, CAPABILITY = "sm_90a", 90  # machine code of sm_90a runs on nothing else


@cache
def _has_compiler() -> bool:
    try:
        return library() is not None
    except Unavailable:
        return False


def is_served(device: torch.device) -> bool:
    """Whether machine code from here can be compiled and run for a device."""
    facts = facts_of(device)
    return PTX_HERE and facts is not None and facts.target.arch == CAPABILITY and _has_compiler()
