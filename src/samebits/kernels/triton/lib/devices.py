"""What kernels may know of the device they are launched on: whose it is, and whether its assembly may be used."""

from __future__ import annotations

import torch

from samebits.kernels.triton.lib.registry import INTERPRETED

ON_AMD = torch.version.hip is not None
PTX_HERE = not INTERPRETED and not ON_AMD  # whether NVIDIA's inline assembly may be used
