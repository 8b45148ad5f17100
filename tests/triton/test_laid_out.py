"""What kernels write beside their int8 rows is what a product would have laid out."""

from __future__ import annotations

import pytest
import torch

import samebits.formats  # noqa: F401  registers them
from samebits.core.tiers import Tier
from samebits.kernels.cuda.products import laid_out as carrying
from samebits.kernels.cuda.products.laid_out import laid_out
from samebits.kernels.cuda.products.shapes import exact_width
from samebits.kernels.triton.lib.registry import INTERPRETED
from samebits.kernels.triton.products.blocks.gated import gated_quantized
from samebits.kernels.triton.products.blocks.many.activations import arranged
from samebits.kernels.triton.rows.norm_q8 import add_rms_norm_q8, add_rms_norm_q8_fast
from samebits.kernels.triton.rows.quantize import quantize_q8, quantize_q8_fast

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="runs in Triton's interpreter")
WIDTH = 320  # ten blocks: no power of two


@pytest.fixture(autouse=True)
def a_device_with_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying, "is_served", lambda device: True)


def made_by(op: str, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(num_tokens, WIDTH, generator=torch.Generator().manual_seed(num_tokens))
    if op == "quantize_q8":
        return quantize_q8(x)
    if op == "gated":
        return gated_quantized(torch.cat([x, x.flip(0)], dim=1), 4)
    return add_rms_norm_q8(x, torch.ones_like(x), torch.ones(WIDTH))[:2]


@pytest.mark.parametrize(
    ("op", "num_tokens"),
    [
        *(("quantize_q8", n) for n in (2, 8, 9, 16, 17, 100)),
        *((op, n) for op in ("gated", "add_rms_norm_q8") for n in (2, 9)),
    ],
)
def test_they_are_what_a_launch_of_their_own_lays_out(op: str, num_tokens: int) -> None:
    codes, scales = made_by(op, num_tokens)
    made = laid_out(codes, scales)
    assert made is not None
    words, word_scales, _ = arranged(codes, scales, "q4_0", exact_width(num_tokens), "gemm_q8")
    tokens = torch.arange(num_tokens)  # one tile of tokens; those that pad it hold what lies there
    assert torch.equal(made.words[:, tokens], words.view(torch.int8).view(made.words.shape)[:, tokens])
    assert torch.equal(made.scales[:, tokens], word_scales.view(made.scales.shape)[:, tokens])


@pytest.mark.parametrize("num_tokens", [1, 129])
def test_no_product_reads_those_of_one_token_or_many(num_tokens: int) -> None:
    assert laid_out(*made_by("quantize_q8", num_tokens)) is None


@pytest.mark.parametrize(("num_tokens", "is_read"), [(2, True), (3, False)])
def test_the_fast_tier_reads_those_of_few_tokens(
    num_tokens: int, is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert carrying.MOST_TOKENS[Tier.FAST] < carrying.MOST_TOKENS[Tier.PORTABLE]
    monkeypatch.setitem(carrying.MOST_TOKENS, Tier.FAST, 2)  # a row takes the interpreter a third of a second
    x = torch.ones(num_tokens, WIDTH)
    normed = add_rms_norm_q8_fast(x, torch.ones_like(x), torch.ones(WIDTH))[:2]
    made = normed, quantize_q8_fast(x), gated_quantized(torch.ones(num_tokens, 2 * WIDTH), 4, tier=Tier.FAST)
    assert [laid_out(*codes_and_scales) is not None for codes_and_scales in made] == [is_read] * 3


def test_a_view_or_a_copy_leaves_them_behind() -> None:
    codes, scales = made_by("quantize_q8", 4)
    assert laid_out(codes, scales) is not None
    assert laid_out(codes[:2], scales[:2]) is None
    assert laid_out(codes.clone(), scales) is None


def test_they_are_not_for_other_scales() -> None:
    codes, scales = made_by("quantize_q8", 4)
    assert laid_out(codes, scales * 2) is None


@pytest.mark.parametrize("which", ["codes", "scales"])
def test_what_was_written_since_is_laid_out_anew(which: str) -> None:
    made = dict(zip(("codes", "scales"), made_by("quantize_q8", 4), strict=True))
    made[which].copy_(made[which].flip(0))
    assert laid_out(made["codes"], made["scales"]) is None
