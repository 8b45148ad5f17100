"""The canonical order of float32 sums.

A cut is 256 consecutive elements that start at a multiple of 256. Inside a cut, element i belongs to
slot i mod 16; each slot is a chain in ascending order that starts at +0; the 16 slots are added in order;
the cuts are added in order. Leaving out an element is the same as adding +0, because a chain that starts
at +0 never becomes -0. So masks, padding and ragged ends need no rule of their own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

CUT = 256
SLOTS = 16
STEPS = CUT // SLOTS


def canonical_sum(x: np.ndarray) -> np.ndarray:
    """Sum of float32 x [..., n] over the last axis, in canonical order; [...]. An empty axis gives +0."""
    n = x.shape[-1]
    num_cuts = -(-n // CUT)
    padded = np.zeros((*x.shape[:-1], num_cuts * CUT), np.float32)
    padded[..., :n] = x
    cuts = padded.reshape(*x.shape[:-1], num_cuts, STEPS, SLOTS)
    slots = np.zeros((*x.shape[:-1], num_cuts, SLOTS), np.float32)
    for step in range(STEPS):
        slots += cuts[..., step, :]
    return chain(chain(slots))


def chain(x: np.ndarray) -> np.ndarray:
    """Left-to-right float32 sum of x [..., n] over the last axis, starting at +0; [...]."""
    total = np.zeros(x.shape[:-1], np.float32)
    for i in range(x.shape[-1]):
        total += x[..., i]
    return total


def canonical_dot(num_elements: int, shape: tuple[int, ...], products: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """Sum of products over `num_elements` in canonical order without holding them all; float32 [*shape].

    products(start, stop) returns the products of elements start .. stop - 1, at most 16 of them:
    float32 [stop - start, *shape].
    """
    total = np.zeros(shape, np.float32)
    for cut_start in range(0, num_elements, CUT):
        cut_stop = min(cut_start + CUT, num_elements)
        slots = np.zeros((min(SLOTS, cut_stop - cut_start), *shape), np.float32)
        for start in range(cut_start, cut_stop, SLOTS):
            terms = products(start, min(start + SLOTS, cut_stop))
            slots[: len(terms)] += terms
        cut = np.zeros(shape, np.float32)
        for slot in slots:
            cut += slot
        total += cut
    return total
