"""Products of the fast tier where float16 is narrow: weights beyond its end, blocks far below others of their row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import samebits.formats  # noqa: F401  registers them
from samebits.core.format import FORMATS, BlockFormat
from samebits.kernels.triton.lib.tensors import Blocks, Tiled
from samebits.kernels.triton.lib.weights import LARGEST_HALF, tile_weight
from samebits.kernels.triton.products.fast.activations import widened
from samebits.kernels.triton.products.fast.dequant import SERVED, dequantized, value_power
from samebits.kernels.triton.products.fast.op import gemm_q8_fast

WITH_HALVES = tuple(name for name in SERVED if name != "nvfp4")
LARGE = 4e4  # the standard deviation of weights: many are beyond float16's 65504
LARGEST = {"q4_0": 4e5, "q4_1": 4e5, "q5_0": 4e5, "q5_1": 4e5, "q4_k": 3e6, "q5_k": 3e6, "nvfp4": 8e6}  # 8e6 elsewhere
LEAST = {"q4_1": -6e4, "q5_1": -6e4}  # a block's least value is a float16
MOST_ERROR = 2.0**-10  # of a sum, relative to that of its terms' magnitudes: operands are rounded to 11 bits


def weight_of(name: str, values: np.ndarray) -> tuple[Tiled, np.ndarray]:
    """The weight, and its values as float64."""
    fmt = FORMATS[name]
    assert isinstance(fmt, BlockFormat)
    packed = fmt.pack(values.astype(np.float32))
    return tile_weight(Blocks(fmt, torch.from_numpy(packed.data.copy()), float(packed.scale))), packed.unpack().astype(
        np.float64
    )


def activations(num_tokens: int, k: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Codes, scales, and the float64 rows that they stand for."""
    rng = np.random.default_rng(1)
    codes = rng.integers(-127, 128, (num_tokens, k), dtype=np.int8)
    scales = rng.uniform(0.01, 0.02, (num_tokens, k // 32)).astype(np.float32)
    return torch.from_numpy(codes), torch.from_numpy(scales), rows_of(codes, scales)


def rows_of(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return codes.astype(np.float64) * np.repeat(scales.astype(np.float64), 32, axis=1)


def check(y: torch.Tensor, x: np.ndarray, w: np.ndarray) -> None:
    error = np.abs(y.numpy() - x @ w.T)
    assert (error <= MOST_ERROR * (np.abs(x) @ np.abs(w).T)).all()


@pytest.mark.parametrize("name", WITH_HALVES)
def test_weights_beyond_float16_stay_finite(name: str) -> None:
    drawn = np.random.default_rng(0).normal(size=(20, 256)) * LARGE
    weight, values = weight_of(name, np.maximum(drawn, LEAST.get(name, -np.inf)))
    assert np.abs(values).max() > LARGEST_HALF
    codes, scales, x = activations(12, 256)
    with np.errstate(all="ignore"):
        check(gemm_q8_fast(codes, scales, weight), x, values)


@pytest.mark.parametrize("group", [0, 2])
@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("largest", [1e-3, 1.0, 8e6])
def test_values_in_memory_are_those_of_the_weight_times_a_power(name: str, largest: float, group: int) -> None:
    """What is multiplied beyond 128 tokens, to nearly the end of a format."""
    drawn = np.random.default_rng(0).uniform(-1, 1, (20, 256)) * min(largest, LARGEST.get(name, 8e6))
    weight, values = weight_of(name, np.maximum(drawn, LEAST.get(name, -np.inf)))
    with np.errstate(all="ignore"):
        found = dequantized(weight, group).double().numpy() / value_power(weight) * weight.scale
    if group:
        found = found.reshape(-1, 2, group, 256).swapaxes(0, 1).reshape(20, 256)
    assert np.isfinite(found).all()
    assert (np.abs(found - values) <= 2.0**-11 * np.abs(values) + 2.0**-22 * np.abs(values).max()).all()


@pytest.mark.parametrize("name", ["q4_0", "q5_k"])
def test_weights_with_a_faint_row_take_exact_products(name: str) -> None:
    drawn = np.random.default_rng(0).normal(size=(20, 256)) * 256
    drawn[7] *= 2.0**-17
    weight, values = weight_of(name, drawn)
    assert weight.is_faint
    codes, scales, x = activations(12, 256)
    with np.errstate(all="ignore"):
        check(gemm_q8_fast(codes, scales, weight), x, values)


@pytest.mark.parametrize(("power", "is_faint"), [(-8, False), (-11, True)])
def test_a_row_is_faint_if_its_values_lose_bits_that_the_bounds_expect(power: int, is_faint: bool) -> None:
    drawn = np.random.default_rng(0).uniform(-1, 1, size=(20, 256))
    drawn[:, 0] = 1.0
    drawn[7] *= 2.0**power
    assert weight_of("q4_0", drawn)[0].is_faint is is_faint


@pytest.mark.parametrize("ratio", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("size", [1e-12, 1.0, 1e20])
def test_blocks_far_below_others_of_their_row_keep_a_quarter_of_a_step(size: float, ratio: float) -> None:
    codes, scales, _ = activations(3, 256)
    scales *= 100 * size  # 1 to 2
    scales[:, 1:] *= ratio
    scales[:, 0] = torch.tensor([1, 1.5, 2 - 2.0**-23]) * size
    codes[:, :2] = torch.tensor([-127, 127])
    rows, row_scale = widened(codes, scales, "gemm_q8", "rows")
    assert torch.isfinite(rows).all()
    steps = (rows.double() * row_scale.double()[:, None]).view(3, 8, 32) / scales.double()[:, :, None]
    assert ((steps - codes.view(3, 8, 32)).abs() <= 1 / 4).all()


def test_a_faint_block_is_multiplied_where_the_others_meet_no_weight() -> None:
    drawn = np.random.default_rng(0).normal(size=(20, 256))
    drawn[:, :32] = 0
    weight, values = weight_of("q8_0", drawn)
    codes, scales, _ = activations(12, 256)
    scales[:, 1:] *= 1e-9
    x = rows_of(codes.numpy(), scales.numpy())
    with np.errstate(all="ignore"):
        y = gemm_q8_fast(codes, scales, weight).numpy()
    assert (np.abs(y - x @ values.T) <= 2.0**-8 * (np.abs(x) @ np.abs(values).T)).all()
