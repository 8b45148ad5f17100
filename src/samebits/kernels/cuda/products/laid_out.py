"""Activations as products take them, written by the kernel that makes their rows, which saves a launch.

A tensor of codes carries them along. A view or a copy of it does not, and codes that come with other scales, or that
were written since, have outgrown them: then the product lays its activations out itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from samebits.core.tiers import Tier
from samebits.kernels.cuda.hopper import is_served
from samebits.kernels.cuda.products.shapes import exact_width

LAID_OUT, VALUES = "samebits_laid_out", "samebits_values"
# Of a tier, that are laid out for exact.cu: for more than 16 the fast one has wide.cu.
MOST_TOKENS = {Tier.FAST: 16, Tier.PORTABLE: 128}


@dataclass(frozen=True)
class LaidOut:
    """Codes and scales of the tokens of a product.

    width    tokens, padded with what lies there, that lie side by side, a block after another
    words    int8 [K / 32, width, 32]; a block as `laid_element` says
    scales   float32 [K / 32, width]
    """

    width: int
    words: torch.Tensor
    scales: torch.Tensor


@dataclass(frozen=True)
class Values:
    """Tokens in float16, as the fast tier's products take them: see kernels/triton/products/fast/activations.py.

    width       tiles of 8 tokens, 0 for rows
    x           words of two, [K / 32, width, 128], for wide.cu: its `fragments`, with columns; or float16 [T, K]
    row_scales  float32 [T]
    """

    width: int
    x: torch.Tensor
    row_scales: torch.Tensor


def _carry(codes: torch.Tensor, scales: torch.Tensor, name: str, made: LaidOut | Values) -> None:
    """With the versions of what it was made of, which writing raises."""
    setattr(codes, name, (made, codes._version, scales, scales._version))


def _carried(codes: torch.Tensor, scales: torch.Tensor, name: str) -> Any:
    made, *rows = getattr(codes, name, (None,))
    if made is None:
        return None
    codes_version, made_scales, scales_version = rows
    is_same = made_scales is scales and (codes._version, scales._version) == (codes_version, scales_version)
    return made if is_same else None


def carries(codes: torch.Tensor) -> tuple[bool, ...]:
    """Whether a tensor carries codes along, and values."""
    return tuple(hasattr(codes, name) for name in (LAID_OUT, VALUES))


def beside(codes: torch.Tensor, scales: torch.Tensor, tier: Tier) -> dict[str, Any]:
    """What a kernel that fills codes [T, K] and scales takes, to lay them out too: words_ptr, word_scales_ptr, width.

    The pointers are None where no product of the tier would read what they point at.
    """
    if codes.dim() != 2 or not 1 < codes.shape[0] <= MOST_TOKENS[tier] or not is_served(codes.device):
        return {"words_ptr": None, "word_scales_ptr": None, "width": 0}
    width = 8 * exact_width(codes.shape[0])
    nb = codes.shape[1] // 32
    words = torch.empty(nb, width, 32, dtype=torch.int8, device=codes.device)
    word_scales = torch.empty(nb, width, dtype=torch.float32, device=codes.device)
    _carry(codes, scales, LAID_OUT, LaidOut(width, words, word_scales))
    return {"words_ptr": words, "word_scales_ptr": word_scales, "width": width}


def laid_out(codes: torch.Tensor, scales: torch.Tensor) -> LaidOut | None:
    """What codes carry for exact.cu, if it is of these codes and scales as they are now."""
    made: LaidOut | None = _carried(codes, scales, LAID_OUT)
    return made


def carry_values(codes: torch.Tensor, scales: torch.Tensor, made: Values) -> None:
    """Lets codes carry along their values with these scales."""
    _carry(codes, scales, VALUES, made)


def carried_values(codes: torch.Tensor, scales: torch.Tensor, width: int) -> Values | None:
    """The values that codes carry, if they are of these codes and scales as they are now, and of that width."""
    made: Values | None = _carried(codes, scales, VALUES)
    return made if made is not None and made.width == width else None
