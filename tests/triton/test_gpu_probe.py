"""What the start-up probe concludes from a device's products and sums."""

from __future__ import annotations

import numpy as np
import torch

from samebits.backends.arithmetic import FLUSHES, judged, operands
from samebits.backends.discovery import get
from samebits.backends.gpu.probe import probed
from samebits.core.tiers import Tier

SMALLEST_NORMAL = np.float32(2.0**-126)


def flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < SMALLEST_NORMAL, np.float32(0), x)


def test_the_host_is_ieee() -> None:
    with np.errstate(under="ignore"):
        assert probed(torch.device("cpu")) == ((), {})


def test_a_device_that_flushes_keeps_every_tier_and_says_so() -> None:
    a, b, c = given = operands()
    products = flushed(flushed(a) * flushed(b))
    assert judged(given, products, flushed(products + flushed(c))) == ((FLUSHES,), {})


def test_a_contracted_product_and_sum_refutes_portable() -> None:
    a, b, c = given = operands()
    with np.errstate(under="ignore"):
        products = a * b
    fused = (a.astype(np.float64) * b + c).astype(np.float32)  # of two float32 the product is exact in float64
    features, refuted = judged(given, products, fused)
    assert features == ()
    assert "contracted" in refuted[Tier.PORTABLE]
    features, refuted = judged(given, flushed(products), flushed(fused))
    assert features == (FLUSHES,)
    assert "contracted" in refuted[Tier.PORTABLE]


def test_products_that_are_rounded_otherwise_refute_portable() -> None:
    a, b, c = given = operands()
    with np.errstate(under="ignore"):
        coarse = (a * b).view(np.int32) & np.int32(-256)
    products = coarse.view(np.float32)
    assert "not IEEE" in judged(given, products, products + c)[1][Tier.PORTABLE]


def test_the_interpreter_cannot_be_asked_to_flush() -> None:
    found = get("cuda")
    assert found.backend is not None
    assert found.backend.flushing() is None
