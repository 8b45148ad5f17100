"""What `sample` refuses, in the reference's words."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.faults import fault
from samebits.ops.sampling import OVERFLOW_WORDS


def _bound(name: str, low: float, high: float) -> tl.constexpr:
    return tl.constexpr(fault("sample", name, "a value out of range", f"{low} .. {high}"))


NO_NAN = tl.constexpr(fault("sample", "logits", "NaN", "no NaN"))
NOT_FINITE_WORDS = ("a row that is empty, all -Inf or holds +Inf", "a finite logit in every row")
NOT_FINITE = tl.constexpr(fault("sample", "logits", *NOT_FINITE_WORDS))
OVERFLOW = tl.constexpr(fault("sample", "logits", *OVERFLOW_WORDS))
NO_TOKEN = tl.constexpr(fault("sample", "bias", "a row that leaves no token", "a finite logit in every row"))
BIAS = tl.constexpr(fault("sample", "bias", "NaN or +Inf", "finite values or -Inf"))
COUNTS = _bound("counts", 0, 2**24)
SAMPLE_INDEX = _bound("sample_index", 0, 2**31 - 1)
POSITION = _bound("position", 0, 2**31 - 1)
TEMPERATURE = _bound("temperature", 0, 1e6)
SMALL_TEMPERATURE = tl.constexpr(fault("sample", "temperature", "a value out of range", "0, or 0.0001 and more"))
TOP_K = _bound("top_k", 0, 2**31 - 1)
TOP_P = _bound("top_p", 2.0**-16, 1)
MIN_P = _bound("min_p", 0, 1)
REPETITION = _bound("repetition", 1e-3, 1e3)
PRESENCE = _bound("presence", -1e3, 1e3)
FREQUENCY = _bound("frequency", -1e3, 1e3)


@triton.jit
def _refuse(fault_ptr, value, low, high, CODE: tl.constexpr):
    # NaN compares false
    is_inside = (value >= low) & (value <= high)
    tl.store(fault_ptr, CODE, mask=is_inside == 0)


@triton.jit
def check_row(
    fault_ptr, row, sample_ptr, position_ptr, temperature_ptr, k_ptr, p_ptr, min_p_ptr,
    repetition_ptr, presence_ptr, frequency_ptr, HAS_COUNTS: tl.constexpr,
):  # fmt: skip
    """The parameters of one row."""
    temperature = tl.load(temperature_ptr + row)
    _refuse(fault_ptr, temperature, 0.0, 1e6, TEMPERATURE)
    tl.store(fault_ptr, SMALL_TEMPERATURE, mask=(temperature > 0) & (temperature < 1e-4))
    _refuse(fault_ptr, tl.load(k_ptr + row), 0, 2**31 - 1, TOP_K)
    _refuse(fault_ptr, tl.load(p_ptr + row), 2.0**-16, 1.0, TOP_P)
    _refuse(fault_ptr, tl.load(min_p_ptr + row), 0.0, 1.0, MIN_P)
    _refuse(fault_ptr, tl.load(sample_ptr + row), 0, 2**31 - 1, SAMPLE_INDEX)
    _refuse(fault_ptr, tl.load(position_ptr + row), 0, 2**31 - 1, POSITION)
    if HAS_COUNTS:
        _refuse(fault_ptr, tl.load(repetition_ptr + row), 1e-3, 1e3, REPETITION)
        _refuse(fault_ptr, tl.load(presence_ptr + row), -1e3, 1e3, PRESENCE)
        _refuse(fault_ptr, tl.load(frequency_ptr + row), -1e3, 1e3, FREQUENCY)


@triton.jit
def has_finite(x):
    """1 where a block has a value above -Inf, else 0."""
    return tl.max((x > float("-inf")).to(tl.int32), axis=0)


@triton.jit
def check_logits(fault_ptr, x):
    """A block of logits: no NaN, no +Inf."""
    tl.store(fault_ptr, NOT_FINITE, mask=tl.max((x == float("inf")).to(tl.int32), axis=0) != 0)
    tl.store(fault_ptr, NO_NAN, mask=tl.max((x != x).to(tl.int32), axis=0) != 0)


@triton.jit
def check_shape(fault_ptr, bias, counts):
    """A block of biases and counts."""
    tl.store(fault_ptr, BIAS, mask=tl.max(tl.where(bias < float("inf"), 0, 1), axis=0) != 0)
    tl.store(fault_ptr, COUNTS, mask=(tl.min(counts, axis=0) < 0) | (tl.max(counts, axis=0) > 2**24))
