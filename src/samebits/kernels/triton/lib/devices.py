"""What kernels may know of the device they are launched on: whose it is, its assembly, how many multiprocessors."""

from __future__ import annotations

from functools import cache

import torch

from samebits.kernels.triton.lib.registry import INTERPRETED

ON_AMD = torch.version.hip is not None
PTX_HERE = not INTERPRETED and not ON_AMD  # whether NVIDIA's inline assembly may be used

# In the interpreter, and where kernels are compiled for a GPU that is not here: so few that small cases meet the
# launches that large ones get on a GPU.
DEFAULT_MULTIPROCESSORS = 8


@cache
def multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a GPU (compute units of AMD's)."""
    if device.type == "cpu":
        return DEFAULT_MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count
