"""kernels/cuda without a GPU: every form is one that a device can take, and NVRTC compiles it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import samebits.formats  # noqa: F401  registers them
from samebits.core.errors import Unavailable
from samebits.kernels.cuda import nvrtc
from samebits.kernels.cuda.products import launch
from samebits.kernels.cuda.products.shapes import (
    MOST_SHARED_BYTES,
    ExactShape,
    exact_shape,
    exact_width,
    fast_shape,
    gated_shape,
    tiles_per_block,
    token_tiles,
    wide_shape,
)
from samebits.kernels.triton.products.fast.dequant import SERVED
from samebits.ops.record import OPS
from samebits.verify.select import find_case

TOKENS = (2, 8, 9, 16, 17, 32, 33, 64, 65, 128)
PROMPTS = (129, 192, 193, 256, 512, 1000, 1025, 4096)
TILES = (1, 36, 132, 256, 384, 896, 1792, 3072)
H200 = 132  # multiprocessors
NAMED_BARRIERS = 15  # beside the one of __syncthreads
MOST_WARPS = 32


@pytest.mark.parametrize("name", launch.FORMATS)
def test_exact_forms_fit_a_multiprocessor(name: str) -> None:
    for tokens in (*TOKENS, *PROMPTS):
        for tiles in TILES:
            shape = exact_shape(tokens, tiles, 128, name, H200)
            assert shape.shared_bytes(name) <= MOST_SHARED_BYTES
            assert shape.threads <= 32 * MOST_WARPS
            assert shape.nt % shape.tg == 0
            assert shape.nt * 8 * -(-tokens // (shape.nt * 8)) >= tokens
            assert shape.g == 1 or shape.rt * shape.tg <= NAMED_BARRIERS


@pytest.mark.parametrize("name", sorted(set(launch.FORMATS) & set(SERVED)))
def test_fast_forms_fit_a_multiprocessor(name: str) -> None:
    for tokens in TOKENS:
        for tiles in TILES:
            shape = fast_shape(token_tiles(tokens), tiles, name, H200)
            assert shape.shared_bytes(name) <= MOST_SHARED_BYTES
            assert shape.nt * 8 >= tokens
            assert shape.nt % shape.tg == 0
            assert shape.sb % shape.kg == 0


@pytest.mark.parametrize("name", sorted(set(launch.FORMATS) & set(SERVED)))
def test_wide_forms_fit_a_multiprocessor_and_divide_k(name: str) -> None:
    for tokens in TOKENS:
        for tiles in TILES:
            for num_blocks in (18, 48, 128, 448):
                shape = wide_shape(token_tiles(tokens), tiles, num_blocks, name, H200)
                assert shape is not None or tokens <= 16 or num_blocks == 18
                if shape is None:
                    continue
                assert shape.shared_bytes(name) <= MOST_SHARED_BYTES
                assert num_blocks % (shape.sb * shape.parts) == 0
                assert shape.sb // shape.kg >= 2  # two batches of a group
                blocks = -(-tiles // shape.tiles) * shape.parts
                assert shape.parts == 1 or blocks <= H200  # no cluster has tiles twice
                assert shape.threads <= 1024


def test_few_rows_are_shared_by_two_blocks_and_many_taken_by_four_warpgroups() -> None:
    shapes = {tiles: wide_shape(8, tiles, 128, "q4_0", H200) for tiles in (256, 384, 896, 1792)}
    assert {tiles: (shape.rg, shape.kg, shape.parts) for tiles, shape in shapes.items() if shape} == {
        256: (1, 2, 2),
        384: (1, 2, 1),
        896: (2, 1, 1),
        1792: (4, 1, 1),
    }


@pytest.mark.parametrize("name", sorted(set(launch.FORMATS) & set(SERVED)))
def test_gated_forms_fit_a_multiprocessor(name: str) -> None:
    for tokens in TOKENS:
        for tiles in TILES:
            shape = gated_shape(token_tiles(tokens), tiles, 128, name, H200)
            assert shape is not None or tokens <= 8 or tiles <= 4 * H200
            if shape is None:
                continue
            assert shape.shared_bytes(name) <= MOST_SHARED_BYTES
            assert shape.kg * shape.parts == 1
            assert shape.gated == (1 if -(-tiles // shape.tiles) <= H200 else 2)


@pytest.mark.parametrize(
    ("case_id", "form"), [("many-rows", (2, 1)), ("more-rows", (4, 1)), ("more-rows-and-tokens", (2, 2))]
)
def test_cases_of_gemm_silu_q8_reach_gated_forms(case_id: str, form: tuple[int, int]) -> None:
    case = find_case(OPS["gemm_silu_q8"], case_id)
    dims, name = case.dims, case.formats["weight"]
    shape = gated_shape(token_tiles(dims["T"]), 4 * dims["HB"], dims["NB"], name, H200)
    assert shape
    assert (shape.rg, shape.gated) == form


@pytest.mark.parametrize(
    ("case_id", "rg"), [("some-tokens-many-rows", 2), ("many-tokens-many-rows", 2), ("some-tokens-more-rows", 4)]
)
def test_cases_of_gemm_q8_reach_wide_forms(case_id: str, rg: int) -> None:
    case = find_case(OPS["gemm_q8"], case_id)
    dims, name = case.dims, case.formats["weight"]
    shape = wide_shape(token_tiles(dims["T"]), dims["N"] // 16, dims["NB"], name, H200)
    assert shape
    assert shape.rg == rg


def test_rows_are_shared_out_evenly() -> None:
    assert tiles_per_block(896, H200) == 7  # 14336 rows: 128 blocks of 112
    assert tiles_per_block(256, H200) == 2
    assert tiles_per_block(1, H200) == 1


def test_one_tile_of_tokens_lies_together() -> None:
    for tokens in TOKENS:
        for tiles in TILES:
            assert exact_shape(tokens, tiles, 128, "q8_0", H200).nt == exact_width(tokens)


def test_prompts_are_cut_where_that_saves_padding() -> None:
    assert [exact_width(tokens) for tokens in (129, 192, 193, 256, 512, 576, 1025)] == [8, 8, 16, 16, 16, 8, 16]


def test_the_fast_tier_hands_over_only_formats_it_has() -> None:
    assert set(SERVED) <= set(launch.FORMATS)


def compiled(shape: launch.Shape, name: str) -> bytes:
    try:
        nvrtc.library()
    except Unavailable as reason:
        pytest.skip(str(reason))
    build = launch.build_of(shape, name)
    code = build.code()
    assert build.is_built()
    return code


@pytest.mark.parametrize("name", launch.FORMATS)
def test_every_format_compiles(name: str) -> None:
    for tokens in (16, 4096):
        assert compiled(exact_shape(tokens, 896, 128, name, H200), name)[:4] == b"\x7fELF"
    if name in SERVED:
        assert compiled(fast_shape(2, 896, name, H200), name)[:4] == b"\x7fELF"
        wide = wide_shape(8, 896, 128, name, H200)
        assert wide
        assert compiled(wide, name)[:4] == b"\x7fELF"


@pytest.mark.parametrize("name", sorted(set(launch.FORMATS) & set(SERVED)))
def test_gated_forms_compile(name: str) -> None:
    one_round, rounds = gated_shape(8, 896, 128, name, H200), gated_shape(16, 1792, 128, name, H200)
    assert one_round
    assert rounds
    assert (one_round.gated, rounds.gated) == (1, 2)
    assert compiled(one_round, name)[:4] == b"\x7fELF"
    assert compiled(rounds, name)[:4] == b"\x7fELF"


@pytest.mark.parametrize(("tail", "fused"), [(1, 0), (0, 1), (1, 1)])
def test_a_last_chunk_that_is_cut_and_fused_terms_compile(tail: int, fused: int) -> None:
    shape = exact_shape(16, 36, 18 if tail else 128, "q4_1", H200)
    assert shape.tail == tail
    assert compiled(replace(shape, fused=fused), "q4_1")[:4] == b"\x7fELF"


@pytest.mark.parametrize("tokens", [8, 32, 64, 128])
def test_every_number_of_tokens_compiles(tokens: int) -> None:
    assert compiled(exact_shape(tokens, 256, 128, "q4_0", H200), "q4_0")[:4] == b"\x7fELF"
    nt = token_tiles(tokens)
    for tiles in (256, 1792):
        shape = wide_shape(nt, tiles, 128, "q4_0", H200) or fast_shape(nt, tiles, "q4_0", H200)
        assert compiled(shape, "q4_0")[:4] == b"\x7fELF"


def test_what_does_not_compile_is_told() -> None:
    with pytest.raises(Unavailable, match=r"exact\.cu could not be compiled"):
        compiled(ExactShape(1, 1, 1, 1, 2), "q9_9")
