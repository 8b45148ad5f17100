"""What a GPU is, and whether it computes as the portable tier needs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch

from samebits.backends.arithmetic import judged, operands
from samebits.core.errors import Unavailable
from samebits.core.installing import install_command
from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.probing import multiply_add


def require_gpu(name: str) -> torch.device:
    """The first device that torch reaches under this name, "cuda" or "rocm"; Unavailable with the reason."""
    built_for = "rocm" if torch.version.hip else "cuda" if torch.version.cuda else "no GPU"
    if built_for != name:
        raise Unavailable(f"torch {torch.__version__} is built for {built_for}; `{install_command(name)}`")
    try:
        torch.cuda.init()  # says why, where is_available() only says no
    except (RuntimeError, AssertionError) as error:
        raise Unavailable(f"no GPU can be used: {str(error).splitlines()[0]}") from None
    if torch.cuda.device_count() == 0:
        raise Unavailable("no GPU is visible to this process")
    return torch.device("cuda", 0)


def probed(device: torch.device) -> tuple[tuple[str, ...], dict[Tier, str]]:
    """(features, tiers that are disproved with the reason) of a small computation on the device."""
    given = operands()
    products, sums = multiply_add(*(torch.from_numpy(x).to(device) for x in given))
    return judged(given, products.cpu().numpy(), sums.cpu().numpy())


def driver_version(system: Path = Path("/")) -> str:
    """Return the version of the kernel module that drives the GPU, or "" if the system does not show it."""
    for file in ("proc/driver/nvidia/version", "sys/module/amdgpu/version"):
        with suppress(OSError):
            return " ".join((system / file).read_text().partition("\n")[0].split())
    return ""
