"""Rotary tables: frequencies correctly rounded, sines right to float32, bits fixed by hash."""

from __future__ import annotations

import hashlib

import mpmath
import numpy as np
import pytest

from samebits.core.numerics.angles import rotary_frequencies, sin_cos
from samebits.ops.rope import rope_table


@pytest.mark.parametrize(("theta", "dim"), [(10000.0, 64), (5e5, 128), (1e5, 64), (1e6, 96)])
def test_frequencies_are_the_nearest_float64(theta: float, dim: int) -> None:
    with mpmath.workdps(60):
        exact = [mpmath.power(mpmath.mpf(theta), mpmath.mpf(-2 * i) / dim) for i in range(dim // 2)]
        assert rotary_frequencies(theta, dim).tolist() == [float(x) for x in exact]


def test_sin_cos_round_correctly_nearly_always() -> None:
    angle = np.random.default_rng(0).uniform(-(2.0**20), 2.0**20, 2000)
    sine, cosine = sin_cos(angle)
    for got, truth in ((sine, mpmath.sin), (cosine, mpmath.cos)):
        want = np.array([float(truth(mpmath.mpf(a))) for a in angle.tolist()])
        error = np.abs(got - want) / np.spacing(np.abs(want).astype(np.float32))
        assert error.max() <= 0.51


TABLES = {  # SHA-256 of the first 4096 positions: a host that makes other tables breaks the portable tier
    "llama-2": (dict(rotary_dim=128, theta=1e4), "9c75d7eb8809285c87a9d911a7fc78d4"),
    "smollm2": (dict(rotary_dim=64, theta=1e5), "3a3f6f7e2bf48c85071fc1885a28985f"),
    "linear": (dict(rotary_dim=64, theta=1e4, scaling="linear", factor=4.0), "908d0ddc12bd4ed1ea9c7a46b630cdfb"),
    "llama-3.1": (dict(rotary_dim=128, theta=5e5, scaling="llama31", factor=8.0), "d2be6147d2cc7ebb121b2b8308428be4"),
}


@pytest.mark.parametrize("name", TABLES)
def test_table_hash(name: str) -> None:
    settings, want = TABLES[name]
    table = rope_table(4096, **settings)
    assert table.shape == (4096, settings["rotary_dim"] // 2, 2)
    assert hashlib.sha256(table.tobytes()).hexdigest()[:32] == want
