"""Activations in the orders of kernels/cuda: the same numbers as in rows, each at its place."""

from __future__ import annotations

import pytest
import torch

from samebits.kernels.triton.products.fast.activations import fragments, widened


@pytest.mark.parametrize("has_columns", [False, True])
def test_fragments_are_the_rows_in_another_order(has_columns: bool) -> None:
    num_tokens, nb, tiles = 11, 35, 2
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(-127, 128, (num_tokens, nb * 32), dtype=torch.int8, generator=generator)
    scales = torch.rand(num_tokens, nb, generator=generator) * torch.logspace(-30, 30, num_tokens)[:, None]
    rows, row_scale = widened(codes, scales, "gemm_q8", "rows")
    words, word_scale = fragments(codes, scales, "gemm_q8", tiles, has_columns)
    assert torch.equal(row_scale, word_scale)

    halves = words.view(torch.float16).view(nb, tiles, 256)
    for element in range(32):
        four, pair = element % 16 // 4, element // 16 * 2 + element % 2
        for token in range(num_tokens):
            within = token % 8
            word = (pair * 8 + within) * 4 + four if has_columns else (within * 4 + four) * 4 + pair
            placed = halves[:, token // 8, 2 * word + element % 4 // 2]
            assert torch.equal(placed, rows[token].view(nb, 32)[:, element])
