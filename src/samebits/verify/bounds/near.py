"""Numbers with a running bound of their float32 error: float64 values, and how far a textbook kernel may be from them.

Each operation adds what one float32 rounding adds, and each elementary function what a device's own function may err.
The functions' errors are those of the loosest shader language (WGSL: exp within 3 + 2 |x| ulp) or better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

UNIT = 2.0**-24  # a float32 rounding, relative
SMALLEST = 2.0**-50  # what settling replaces by zero
LOG2E = 1.4426950408889634
LARGEST_EXPONENT = 60.0  # of an error that exp turns into a factor; e^60 is beyond every check


def growth(num_terms: int) -> float:
    """Return how many roundings of the sum of magnitudes a float32 sum of `num_terms` terms may err, in any order.

    Roundings of a chain are independent, so the root of its length times 4 covers them. Accumulators that truncate, as
    some tensor cores do, add one bias for each product of 16 terms.
    """
    return min(float(num_terms), 4 * num_terms**0.5 + num_terms / 16) + 4


@dataclass(frozen=True)
class Near:
    """float64 values, and the error of each that float32 arithmetic may have."""

    value: np.ndarray
    error: np.ndarray

    @staticmethod
    def of(x: Any) -> Near:
        """Exact values."""
        value = np.asarray(x, np.float64)
        return Near(value, np.zeros(value.shape))

    def rounded(self, times: float = 1.0) -> Near:
        """The same with `times` more float32 roundings."""
        return Near(self.value, self.error + times * UNIT * np.abs(self.value))

    def settled(self) -> Near:
        """The same where magnitudes below 2^-50 may have become zero."""
        return Near(self.value, self.error + np.where(np.abs(self.value) <= SMALLEST + self.error, SMALLEST, 0.0))

    def __add__(self, other: Near) -> Near:
        return Near(self.value + other.value, self.error + other.error).rounded()

    def __neg__(self) -> Near:
        return Near(-self.value, self.error)

    def __sub__(self, other: Near) -> Near:
        return self + -other

    def __mul__(self, other: Near) -> Near:
        error = np.abs(self.value) * other.error + np.abs(other.value) * self.error + self.error * other.error
        return Near(self.value * other.value, error).rounded()

    def __getitem__(self, index: Any) -> Near:
        return Near(self.value[index], self.error[index])

    def reshape(self, *shape: int) -> Near:
        return Near(self.value.reshape(shape), self.error.reshape(shape))

    def halves(self) -> tuple[Near, Near]:
        """Both halves of the last axis."""
        values, errors = np.split(self.value, 2, axis=-1), np.split(self.error, 2, axis=-1)
        return Near(values[0], errors[0]), Near(values[1], errors[1])

    def sum(self) -> Near:
        """The sum over the last axis, which stays with size 1."""
        bound = UNIT * growth(self.value.shape[-1]) * np.abs(self.value).sum(axis=-1, keepdims=True)
        return Near(self.value.sum(axis=-1, keepdims=True), self.error.sum(axis=-1, keepdims=True) + bound)

    def clipped(self, low: float, high: float) -> Near:
        """Values kept within low .. high. NaN stays."""
        return Near(np.clip(self.value, low, high), self.error)


def exp(x: Near) -> Near:
    """e^x within 4 + 2 |x| ulp of float32."""
    value = np.exp(x.value)
    relative = np.expm1(np.minimum(x.error, LARGEST_EXPONENT)) + (8 + 4 * np.abs(x.value)) * UNIT
    return Near(value, np.where(value > 0, value * relative, 0.0) + 2 * SMALLEST)


def recip(x: Near) -> Near:
    """1 / x within 4 ulp."""
    value = 1 / x.value
    return Near(value, np.abs(value) * (_relative(x) + 8 * UNIT))


def rsqrt(x: Near) -> Near:
    """1 / sqrt(x) within 4 ulp."""
    value = 1 / np.sqrt(x.value)
    return Near(value, value * (0.5 * _relative(x) + 8 * UNIT))


def sigmoid(x: Near) -> Near:
    """1 / (1 + e^-x) by an exponential and a quotient."""
    value = 0.5 * (1 + np.tanh(0.5 * x.value))
    small = np.exp(np.minimum(x.value, 0)) / (1 + np.exp(-np.abs(x.value)))  # without cancellation below 0
    value = np.where(x.value < 0, small, value)
    moved = np.expm1(np.minimum(x.error, LARGEST_EXPONENT)) + 4 * np.minimum(np.abs(x.value), 1e4) * UNIT
    return Near(value, value * ((1 - value) * moved + 12 * UNIT) + 2 * SMALLEST)


def tanh(x: Near) -> Near:
    """tanh x within 2^-20: some kernels make it of an exponential, and it cancels near 0."""
    value = np.tanh(x.value)
    return Near(value, (1 - value**2) * x.error + 16 * UNIT)


def softplus(x: Near) -> Near:
    """log(1 + e^x): a sum that is rounded before the logarithm is within a rounding of 1."""
    value = np.logaddexp(0.0, x.value)
    return Near(value, x.error + 12 * UNIT * value + 4 * UNIT)


def log2(x: Near) -> Near:
    """log2 x within 4 ulp of the larger of it and 1."""
    value = np.log2(x.value)
    return Near(value, _relative(x) * LOG2E + 8 * UNIT * np.maximum(np.abs(value), 1))


def _relative(x: Near) -> np.ndarray:
    relative: np.ndarray = x.error / np.abs(x.value)
    return np.where(relative < 0.5, relative, 2 * relative)
