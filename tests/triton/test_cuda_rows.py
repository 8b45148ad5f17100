"""kernels/cuda/rows: the calls it takes; NVRTC compiles it; on a GPU, products get what they would make themselves."""

from __future__ import annotations

import pytest
import torch

from samebits.core.errors import Unavailable
from samebits.kernels.cuda import nvrtc
from samebits.kernels.cuda.hopper import is_served
from samebits.kernels.cuda.products.laid_out import Values, carried_values, carries, carry_values
from samebits.kernels.cuda.products.shapes import token_tiles
from samebits.kernels.cuda.rows import blocks

HAS_GPU = torch.cuda.is_available() and is_served(torch.device("cuda"))


@pytest.fixture
def a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "is_served", lambda device: True)


@pytest.mark.usefixtures("a_device")
@pytest.mark.parametrize(("shape", "is_taken"), [
    ((17, 512), True), ((128, 16384), True), ((64, 14336), True),
    ((129, 512), True), ((4096, 4096), True),
    ((16, 512), False), ((64, 576), False), ((64, 32768), False), ((64,), False), ((2, 32, 512), False),
])  # fmt: skip
def test_rows_that_are_multiplied_in_float16_are_taken(shape: tuple[int, ...], is_taken: bool) -> None:
    assert blocks.serves(torch.empty(shape)) is is_taken


@pytest.mark.usefixtures("a_device")
def test_other_types_strides_and_places_are_left_to_triton() -> None:
    x, wide = torch.empty(64, 512), torch.empty(64, 1024)
    assert blocks.serves(x, x, torch.empty(512))
    assert not blocks.serves(x.half())
    assert not blocks.serves(x, x.bfloat16())
    assert not blocks.serves(wide[:, :512])
    assert not blocks.serves(torch.empty(64 * 512 + 1)[1:].view(64, 512))


def test_without_a_gpu_nothing_is_taken() -> None:
    assert not blocks.serves(torch.empty(64, 512))


@pytest.mark.parametrize("width", [512, 4096, 16384])
@pytest.mark.parametrize("is_normed", [False, True])
@pytest.mark.parametrize("is_plain", [False, True])
def test_every_width_compiles(width: int, is_normed: bool, is_plain: bool) -> None:
    try:
        nvrtc.library()
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert blocks.build_of(width, is_normed, is_plain).code()[:4] == b"\x7fELF"


def test_values_are_for_the_codes_and_scales_they_were_made_of() -> None:
    codes, scales = torch.zeros(20, 64, dtype=torch.int8), torch.zeros(20, 2)
    assert carries(codes) == (False, False)
    made = Values(token_tiles(20), torch.empty(2, 4, 128), torch.empty(20))
    carry_values(codes, scales, made)
    assert carries(codes) == (False, True)
    assert carried_values(codes, scales, made.width) is made
    assert carried_values(codes, scales, 2 * made.width) is None
    assert carried_values(codes, scales.clone(), made.width) is None
    assert carried_values(codes[:], scales, made.width) is None
    codes.fill_(1)
    assert carried_values(codes, scales, made.width) is None


def made_on_a_gpu(num_tokens: int, width: int, is_normed: bool) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(width)
    x = torch.randn(num_tokens, width, device="cuda") * torch.rand(num_tokens, 1, device="cuda") ** 8
    x[3] = 0
    more = (torch.randn_like(x), torch.rand(width, device="cuda"), 1e-5) if is_normed else ()
    return blocks.blocks_of_rows(x, 1, *more)


@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA Hopper")
@pytest.mark.parametrize(("num_tokens", "width"), [(129, 512), (300, 4096), (200, 14336)])
@pytest.mark.parametrize("is_normed", [False, True])
def test_rows_are_those_that_a_launch_of_their_own_makes(num_tokens: int, width: int, is_normed: bool) -> None:
    from samebits.kernels.triton.products.fast.activations import widened

    codes, scales = made_on_a_gpu(num_tokens, width, is_normed)
    made = carried_values(codes, scales, 0)
    assert made is not None
    x, row_scales = widened(codes, scales, "gemm_q8", "rows")
    assert torch.equal(made.row_scales, row_scales)
    assert torch.equal(made.x, x)


@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA Hopper")
@pytest.mark.parametrize(("num_tokens", "width"), [(17, 512), (40, 4096), (128, 14336)])
@pytest.mark.parametrize("is_normed", [False, True])
def test_fragments_are_those_that_a_launch_of_their_own_makes(num_tokens: int, width: int, is_normed: bool) -> None:
    from samebits.kernels.triton.products.fast.activations import fragments

    codes, scales = made_on_a_gpu(num_tokens, width, is_normed)
    made = carried_values(codes, scales, token_tiles(num_tokens))
    assert made is not None
    y, row_scales = fragments(codes, scales, "gemm_q8", made.width, has_columns=True)
    assert torch.equal(made.row_scales, row_scales)
    tokens = torch.arange(num_tokens, device="cuda")
    mine, theirs = (words.view(-1, made.width, 4, 8, 4).permute(1, 3, 0, 2, 4).flatten(0, 1) for words in (made.x, y))
    assert torch.equal(mine[tokens], theirs[tokens])
