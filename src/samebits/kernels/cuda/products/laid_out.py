"""Activations as exact.cu takes them, written beside their rows by the kernel that makes these: a launch less.

A tensor of codes carries them along. Whoever makes another tensor of it, a view or a copy, leaves them behind; then the
product lays its activations out itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from samebits.kernels.cuda.products.launch import is_served
from samebits.kernels.cuda.products.shapes import exact_width

CARRIED = "samebits_laid_out"
MOST_TOKENS = 16  # beyond, stores byte by byte take longer than a launch


@dataclass(frozen=True)
class LaidOut:
    """Codes and scales of the tokens of a product.

    width    tokens that lie side by side, a block after another: a multiple of 8
    words    int8 [tokens / width, K / 32, width, 32], padded with what lies there; a block as `laid_element` says
    scales   float32 [tokens / width, K / 32, width]
    """

    width: int
    words: torch.Tensor
    scales: torch.Tensor


def beside(codes: torch.Tensor) -> dict[str, Any]:
    """What a kernel that fills codes [T, K] takes, to lay them out too: words_ptr, word_scales_ptr, width.

    The pointers are None where no product would read what they point at.
    """
    if codes.dim() != 2 or not 1 < codes.shape[0] <= MOST_TOKENS or not is_served(codes.device):
        return {"words_ptr": None, "word_scales_ptr": None, "width": 0}
    width = 8 * exact_width(codes.shape[0])
    tiles, nb = -(-codes.shape[0] // width), codes.shape[1] // 32
    words = torch.empty(tiles, nb, width, 32, dtype=torch.int8, device=codes.device)
    scales = torch.empty(tiles, nb, width, dtype=torch.float32, device=codes.device)
    setattr(codes, CARRIED, LaidOut(width, words, scales))
    return {"words_ptr": words, "word_scales_ptr": scales, "width": width}


def laid_out(codes: torch.Tensor) -> LaidOut | None:
    """What codes carry, if they do."""
    return getattr(codes, CARRIED, None)
