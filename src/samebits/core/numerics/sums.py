"""The canonical orders of float32 sums. Why these: docs/numerics.md, section 3.

Every chain starts at +0 and therefore never becomes -0, so leaving out an element is the same as adding +0:
masks, padding and ragged ends need no rule of their own.

A cut is 256 consecutive elements that start at a multiple of 256. Cuts are added in order.
  stream order  for axes that are walked (K of a gemm, positions of a cache): a cut is 16 runs of 16
                consecutive elements; a run is a chain; runs are added in order.
  row order     for rows that lie in lanes (norms, softmax): a cut is 16 slots, slot j holds elements
                j, j + 16, ...; a slot is a chain; slots are added in order.
  head order    for Q.K over a head: runs of 8 consecutive elements, each a chain; the runs are joined by an
                adjacent-pair tree, padded with +0 to a power of two.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

CUT = 256
RUN = 16
HEAD_RUN = 8


def chain(x: np.ndarray) -> np.ndarray:
    """Left-to-right float32 sum of x [..., n] over the last axis, starting at +0; [...]."""
    total = np.zeros(x.shape[:-1], np.float32)
    for i in range(x.shape[-1]):
        total += x[..., i]
    return total


def pair_tree(x: np.ndarray) -> np.ndarray:
    """Adjacent-pair tree over the last axis, padded with +0 to a power of two; float32 [...]."""
    while x.shape[-1] > 1:
        if x.shape[-1] % 2:
            x = np.concatenate([x, np.zeros((*x.shape[:-1], 1), np.float32)], axis=-1)
        x = x[..., 0::2] + x[..., 1::2]
    return x[..., 0] if x.shape[-1] else np.zeros(x.shape[:-1], np.float32)


def _cuts(x: np.ndarray) -> np.ndarray:
    """x [..., n] padded with +0 to whole cuts: [..., num_cuts, 16, 16]."""
    n = x.shape[-1]
    num_cuts = -(-n // CUT)
    padded = np.zeros((*x.shape[:-1], num_cuts * CUT), np.float32)
    padded[..., :n] = x
    return padded.reshape(*x.shape[:-1], num_cuts, RUN, RUN)


def row_sum(x: np.ndarray) -> np.ndarray:
    """Sum of float32 x [..., n] over the last axis in row order; [...]. An empty axis gives +0."""
    return chain(chain(chain(_cuts(x).swapaxes(-1, -2))))


def stream_sum(x: np.ndarray) -> np.ndarray:
    """Sum of float32 x [..., n] over the last axis in stream order; [...]. An empty axis gives +0."""
    return chain(chain(chain(_cuts(x))))


def stream_dot(num_elements: int, shape: tuple[int, ...], products: Callable[[slice], np.ndarray]) -> np.ndarray:
    """Sum of products over `num_elements` in stream order without holding them all; float32 [*shape].

    products(rows) returns the products of the elements of a slice, at most 16: float32 [count, *shape].
    """
    total = np.zeros(shape, np.float32)
    for start in range(0, num_elements, CUT):
        stop = min(start + CUT, num_elements)
        runs = np.zeros((-(-(stop - start) // RUN), *shape), np.float32)
        for step in range(min(RUN, stop - start)):
            terms = products(slice(start + step, stop, RUN))  # element `step` of every run
            runs[: len(terms)] += terms
        cut = np.zeros(shape, np.float32)
        for run in runs:
            cut += run
        total += cut
    return total


def head_dot(num_elements: int, shape: tuple[int, ...], product: Callable[[int], np.ndarray]) -> np.ndarray:
    """Sum of products over a head in head order; product(d) is float32 [*shape]. Returns float32 [*shape]."""
    runs = []
    for start in range(0, num_elements, HEAD_RUN):
        run = np.zeros(shape, np.float32)
        for d in range(start, min(start + HEAD_RUN, num_elements)):
            run += product(d)
        runs.append(run)
    return pair_tree(np.stack(runs, axis=-1)) if runs else np.zeros(shape, np.float32)
