"""The native kernels' floating-point mode: they round to nearest in all threads, whatever mode their caller is in."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from samebits.backends.cpu import CpuBackend
from samebits.core.errors import Unavailable, Unsupported
from samebits.core.tiers import Tier
from samebits.kernels.cpp import flushing_subnormals, native
from samebits.ops import OPS, Op, make_inputs
from samebits.verify.harness import execute, raw_bytes

try:
    native()
except Unavailable as error:
    pytest.skip(str(error), allow_module_level=True)

# The values that fesetround takes, by architecture: upwards, downwards, towards zero.
ROUNDINGS = {"x86_64": (0x800, 0x400, 0xC00), "aarch64": (0x400000, 0x800000, 0xC00000)}.get(platform.machine(), ())
MATH = ctypes.CDLL(ctypes.util.find_library("m"))
THREADS = (1, 2, 3)


def sums() -> list[float]:
    """Return sums that differ with the rounding mode."""
    return [one + sign * 1e-30 for one in (1.0, -1.0) for sign in (1, -1)]


@contextmanager
def rounding(mode: int) -> Iterator[None]:
    """Round this thread's arithmetic by `mode`, which must be as it was set at the end."""
    before, nearest = MATH.fegetround(), sums()
    assert MATH.fesetround(mode) == 0
    try:
        there = sums()
        yield
        assert sums() == there != nearest
    finally:
        MATH.fesetround(before)


@pytest.mark.parametrize("op", list(OPS), ids=lambda op: op.name)
@pytest.mark.skipif(not ROUNDINGS, reason="the values of fesetround are not known here")
def test_an_op_has_the_same_bits_in_every_rounding_mode(op: Op) -> None:
    backend, inputs = CpuBackend(), make_inputs(op, op.cases[0])

    def bits() -> list[bytes]:
        return [raw_bytes(x).tobytes() for x in execute(backend, op, inputs, Tier.PORTABLE).results]

    backend.set_threads(THREADS[1])
    try:
        want = bits()
    except Unsupported:
        pytest.skip("no native kernel serves it")
    for count, mode in zip(THREADS, ROUNDINGS, strict=True):
        backend.set_threads(count)
        with rounding(mode):
            got = bits()
        assert got == want


@pytest.mark.parametrize("mode", ROUNDINGS)
def test_threads_started_in_another_rounding_mode_round_to_nearest(mode: int) -> None:
    backend, x = CpuBackend(), np.linspace(-3, 3, 900, dtype=np.float32).reshape(9, 100)

    def bits() -> list[bytes]:
        return [raw_bytes(y).tobytes() for y in execute(backend, OPS["softmax"], {"x": x}, Tier.PORTABLE).results]

    want = bits()
    backend.set_threads(3)
    with rounding(mode):
        assert bits() == want
    assert bits() == want


def test_a_run_leaves_the_callers_mode_as_it_was() -> None:
    backend, x = CpuBackend(), np.ones((9, 100), np.float32)
    with flushing_subnormals():
        execute(backend, OPS["softmax"], {"x": x}, Tier.PORTABLE)
        assert native().flushes_subnormals()
    assert not native().flushes_subnormals()
