"""Activations as exact.cu takes them, written beside their rows by the kernel that makes these: a launch less.

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

CARRIED = "samebits_laid_out"
# Of a tier: for more tokens than 16 the fast one has wide.cu, which takes another order.
MOST_TOKENS = {Tier.FAST: 16, Tier.PORTABLE: 128}


@dataclass(frozen=True)
class LaidOut:
    """Codes and scales of the tokens of a product.

    width    tokens, padded with what lies there, that lie side by side, a block after another
    words    int8 [K / 32, width, 32]; a block as `laid_element` says
    scales   float32 [K / 32, width]
    rows     the codes' version and the scales [T, K / 32] with theirs, as they were made: writing raises a version
    """

    width: int
    words: torch.Tensor
    scales: torch.Tensor
    rows: tuple[int, torch.Tensor, int]


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
    setattr(codes, CARRIED, LaidOut(width, words, word_scales, (codes._version, scales, scales._version)))
    return {"words_ptr": words, "word_scales_ptr": word_scales, "width": width}


def is_laid_out(codes: torch.Tensor) -> bool:
    """Whether a tensor carries anything along."""
    return hasattr(codes, CARRIED)


def laid_out(codes: torch.Tensor, scales: torch.Tensor) -> LaidOut | None:
    """What codes carry, if it is of these codes and scales as they are now."""
    made: LaidOut | None = getattr(codes, CARRIED, None)
    if made is None:
        return None
    codes_version, made_scales, scales_version = made.rows
    is_same = made_scales is scales and (codes._version, scales._version) == (codes_version, scales_version)
    return made if is_same else None
