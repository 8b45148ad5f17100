"""The power of two that brings a weight's scales near float16's end, and rows too small for it: lib/weights.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import samebits.formats  # noqa: F401  registers them
from samebits.core.format import FORMATS
from samebits.kernels.triton.lib.tensors import Blocks, Tiled
from samebits.kernels.triton.lib.weights import LARGEST_HALF, LARGEST_SUB, plane_views, power_offset, tile_weight

WITH_HALVES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k")
MOST_POWER = 2.0**15


def packed(name: str, values: np.ndarray) -> Tiled:
    return tile_weight(
        Blocks(FORMATS[name], torch.from_numpy(FORMATS[name].pack(values.astype(np.float32)).data.copy()))
    )


def power_of(weight: Tiled) -> float:
    first, second = weight.data[power_offset(weight) :][:4].view(torch.float16).tolist()
    assert first == second
    return float(first)


@pytest.mark.parametrize("name", WITH_HALVES)
@given(exponent=st.integers(-20, 12), seed=st.integers(0, 99))
def test_the_largest_scale_comes_near_the_end_and_not_beyond(name: str, exponent: int, seed: int) -> None:
    weight = packed(name, np.random.default_rng(seed).normal(size=(20, 256)) * 2.0**exponent)
    power = power_of(weight)
    assert power <= MOST_POWER
    views = plane_views(weight)
    planes = [views[plane].view(torch.float16) for plane in ("d", "m") if plane in views]
    largest = max(float(plane.abs().max()) for plane in planes) * LARGEST_SUB.get(name, 1)
    raised = largest * power * 16
    assert raised <= LARGEST_HALF
    assert raised > LARGEST_HALF / 2 or power == MOST_POWER


@pytest.mark.parametrize("name", WITH_HALVES)
def test_one_row_of_small_values_makes_a_weight_faint(name: str) -> None:
    values = np.random.default_rng(0).normal(size=(20, 256)) * 256
    assert not packed(name, values).is_faint
    values[7] = 0
    assert not packed(name, values).is_faint
    values[7] = np.random.default_rng(1).normal(size=256) * 2.0**-9
    assert packed(name, values).is_faint


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_no_number_leaves_other_rows_their_power(wrong: float) -> None:
    fmt = FORMATS["q8_0"]
    rows = fmt.pack(np.random.default_rng(0).uniform(-4e6, 4e6, (20, 64)).astype(np.float32)).data.copy()
    without = tile_weight(Blocks(fmt, torch.from_numpy(rows.copy())))
    rows[3, :2] = np.array([wrong], np.float16).view(np.uint8)
    weight = tile_weight(Blocks(fmt, torch.from_numpy(rows)))
    assert (weight.power, weight.is_faint) == (without.power, False)
    assert power_of(weight) == without.power


def test_scales_that_are_no_numbers_are_no_reason_to_fail() -> None:
    data = np.full((16, FORMATS["q4_0"].block_bytes), 0xFF, np.uint8)  # d is NaN
    assert not tile_weight(Blocks(FORMATS["q4_0"], torch.from_numpy(data))).is_faint


@pytest.mark.parametrize("name", ["nvfp4", "mxfp4"])
def test_formats_without_such_scales_have_a_power_of_1(name: str) -> None:
    assert power_of(packed(name, np.random.default_rng(0).normal(size=(20, 256)))) == 1
