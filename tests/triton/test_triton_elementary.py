"""The elementary functions of Triton kernels have the bits of core/numerics, in Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.core.numerics import elementary as canonical
from samebits.kernels.triton.lib import elementary

F = np.float32
ONE_ARGUMENT = ("exp", "recip", "rsqrt", "log", "log2", "sigmoid", "tanh", "erf", "erfc", "softplus", "round_to_int")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 2.0**-149, -(2.0**-149), 2.0**-130, 2.0**-126, 2.0**126]
EDGES = [-34.5, 88.0, 0.625, -0.625, 5.5, -5.5, 1.0, -1.0, 0.41421356, 0.70710677, 0.5, 1.5, 2.5, -2.5, 3.4028235e38]


@triton.jit
def apply_kernel(x_ptr, y_ptr, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, FUNCTION(tl.load(x_ptr + i)))


def in_triton(name: str, x: np.ndarray) -> np.ndarray:
    """The function over x, any number of elements."""
    padded = np.ones(-(-x.size // 256) * 256, F)
    padded[: x.size] = x
    y = torch.empty(padded.size)
    apply_kernel[(padded.size // 256,)](torch.from_numpy(padded), y, getattr(elementary, name), 256)
    return y.numpy()[: x.size]


def check(name: str, x: np.ndarray) -> None:
    """Bits are the same; a NaN is one in both, whatever its own bits."""
    with np.errstate(all="ignore"):
        got, want = in_triton(name, x), getattr(canonical, name)(x)
    wrong = (got.view(np.int32) != want.view(np.int32)) & ~(np.isnan(got) & np.isnan(want))
    assert not wrong.any(), f"{name}({x[wrong][0]!r}) is {got[wrong][0]!r}, not {want[wrong][0]!r}"


@pytest.mark.parametrize("name", ONE_ARGUMENT)
def test_random_bit_patterns_and_edges(name: str) -> None:
    rng = np.random.default_rng(0)
    patterns = rng.integers(-(2**31), 2**31, 4096).astype(np.int32).view(F)
    usual = (rng.standard_normal(4096) * 8).astype(F)
    edges = np.array([*SPECIAL, *EDGES], F)
    with np.errstate(over="ignore"):
        beside = [np.nextafter(edges, F(to)) for to in (-np.inf, np.inf)]
    check(name, np.concatenate([patterns, usual, edges, *beside]))


@pytest.mark.parametrize("name", ONE_ARGUMENT)
@given(values=st.lists(st.floats(width=32), min_size=1, max_size=64))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_any_values(name: str, values: list[float]) -> None:
    check(name, np.array(values, F))


def test_soft_cap_is_its_own_expression_of_tanh_and_recip() -> None:
    x, cap = np.random.default_rng(1).standard_normal(256).astype(F) * F(60), F(30)
    inverse = canonical.recip(np.array([cap], F))[0]
    y = torch.empty(256)
    soft_cap_kernel[(1,)](torch.from_numpy(x), y, float(cap), float(inverse), 256)
    assert y.numpy().tobytes() == (cap * canonical.tanh(x * inverse)).tobytes()


@triton.jit
def soft_cap_kernel(x_ptr, y_ptr, cap, inv_cap, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, elementary.soft_capped(tl.load(x_ptr + i), cap, inv_cap))
