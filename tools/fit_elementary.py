"""Fits the polynomials of samebits.core.numerics.elementary and prints them as float32 constants.

Lawson's reweighted least squares approaches the minimax polynomial; the weights make the error relative.
The printed constants are part of the numerics version: running this again must not change the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

erfc = np.vectorize(math.erfc)


def fit(
    target: Callable[[np.ndarray], np.ndarray],
    weight: Callable[[np.ndarray], np.ndarray],
    low: float,
    high: float,
    degree: int,
) -> tuple[np.ndarray, float]:
    """Coefficients, lowest power first, that minimise max |weight * (poly - target)| on [low, high]."""
    nodes = (low + high) / 2 + (high - low) / 2 * np.cos(np.linspace(0, np.pi, 4001))
    powers = np.vander(nodes, degree + 1, increasing=True)
    values, scale = target(nodes), weight(nodes)
    lawson = np.ones_like(nodes)
    best, best_error = np.zeros(degree + 1), np.inf
    for _ in range(200):
        row_weight = np.sqrt(lawson) * scale
        coefficients = np.linalg.lstsq(powers * row_weight[:, None], values * row_weight, rcond=None)[0]
        error = np.abs(scale * (powers @ coefficients - values))
        if error.max() < best_error:
            best, best_error = coefficients, float(error.max())
        lawson *= error / error.max() + 1e-12
        lawson /= lawson.sum()
    return best, best_error


def show(name: str, coefficients: np.ndarray, error: float) -> None:
    print(f"{name}: max weighted error {error:.2e}")
    print("   ", ", ".join(f"{float(np.float32(c))!r}" for c in coefficients))


def main() -> None:
    half_ln2 = math.log(2) / 2 * 1.001
    # exp(r) = 1 + (r + r*r*P(r))
    show("exp", *fit(lambda r: (np.expm1(r) - r) / r**2, lambda r: r**2, -half_ln2, half_ln2, 4))
    # log(1+f) = f - (f*f/2 - f*f*f*P(f))
    low, high = math.sqrt(0.5) - 1, math.sqrt(2) - 1
    show(
        "log", *fit(lambda f: (np.log1p(f) - f + f * f / 2) / f**3, lambda f: np.abs(f**3 / np.log1p(f)), low, high, 7)
    )
    # tanh(x) = x + x*x2*P(x2), x2 = x*x, |x| < 0.625
    root = np.sqrt
    show("tanh", *fit(lambda s: (np.tanh(root(s)) / root(s) - 1) / s, lambda s: s, 1e-6, 0.625**2, 4))
    # erf(x) = x*P(x2), |x| <= 1
    erf = np.vectorize(math.erf)
    show("erf", *fit(lambda s: erf(root(s)) / root(s), lambda s: np.ones_like(s), 1e-9, 1.0, 6))
    # erfc(x) = exp(-x*x - P(x)), 1 < x < 5.5; weighted by erfc, since its absolute error is what counts
    show("erfc", *fit(lambda x: -x * x - np.log(erfc(x)), lambda x: np.maximum(erfc(x), 1e-4), 1.0, 5.5, 8))


if __name__ == "__main__":
    main()
