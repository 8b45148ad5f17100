"""Codes and scales of least squared error, for many blocks side by side.

Blocks lie along the last axis, elements along the first, so that every step is one pass over contiguous rows and sums
go element by element in one order: the same bytes on every machine and with any number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from samebits.core.numerics.rounding import F16, rounded

TINY = np.float32(1e-30)  # of a divisor that is nothing
# Steps tried around the one that just covers a block, in codes: a slightly smaller step often serves all but the ends.
AFFINE_TRIES = tuple(np.float32(t) for t in (-0.9, -0.7, -0.5, -0.35, -0.2, -0.1, 0.0, 0.1, 0.2, 0.35, 0.5, 0.7))
SIGNED_TRIES = tuple(np.float32(t) for t in (-0.9, -0.6, -0.3, 0.0, 0.3, 0.6))
AFFINE_ROUNDS, SIGNED_ROUNDS = 6, 3  # of choosing codes for scales, then scales for codes


@dataclass
class Affine:
    """Super-blocks worth d * scale * q - dmin * offset.

    d, dmin          float32 [blocks], each a float16
    scales, offsets  float32 whole numbers [subs, blocks]
    q                float32 whole numbers [subs, elements, blocks]
    error            float32 [blocks], squared
    """

    d: np.ndarray
    dmin: np.ndarray
    scales: np.ndarray
    offsets: np.ndarray
    q: np.ndarray
    error: np.ndarray


@dataclass
class Signed:
    """Super-blocks worth d * scale * level[q]; `levels` float32 [subs, elements, blocks]. Else as `Affine`."""

    d: np.ndarray
    scales: np.ndarray
    levels: np.ndarray
    error: np.ndarray


def total(a: np.ndarray, b: np.ndarray | None = None, axis: int = 0) -> np.ndarray:
    """The sum of a, or of a * b, along an axis but the last, in its order."""
    return np.add.reduce(a if b is None else a * b, axis=axis)


def over(a: np.ndarray | np.float32, b: np.ndarray) -> np.ndarray:
    """a / b, and 0 where b is next to nothing."""
    return np.where(np.abs(b) > TINY, a / np.where(np.abs(b) > TINY, b, np.float32(1)), np.float32(0))


def as_f16(x: np.ndarray) -> np.ndarray:
    return np.asarray(rounded(x, F16).astype(np.float32))


def fit_affine(x: np.ndarray, top: int, top_scale: int) -> Affine:
    """x float32 [subs, elements, blocks] in codes 0 .. top, sub-scales and offsets 0 .. top_scale."""
    step, offset = _affine_steps(x, np.float32(top))
    best = None
    d = as_f16(step.max(axis=0) / np.float32(top_scale))
    dmin = as_f16(offset.max(axis=0) / np.float32(top_scale))
    for _ in range(AFFINE_ROUNDS):
        scales = np.clip(np.rint(over(step, d)), 0, top_scale)
        stored = d * scales
        offsets = np.clip(np.rint(over(_offset_of(x, stored, offset, top), dmin)), 0, top_scale)
        stored_offset = dmin * offsets
        q = np.clip(np.rint(over(np.float32(1), stored)[:, None] * (x + stored_offset[:, None])), 0, top)
        rest = x - (stored[:, None] * q - stored_offset[:, None])
        found = Affine(d, dmin, scales, offsets, q, total(total(rest, rest, 1)))
        best = found if best is None else _better(best, found)
        step, offset = _refit(x, q)
        d, dmin = _refit_super(x, q, scales, offsets)
    if best is None:
        raise ValueError("no round was made")
    return best


def _offset_of(x: np.ndarray, step: np.ndarray, offset: np.ndarray, top: int) -> np.ndarray:
    """The offset that suits a step once that is rounded, by the codes that both give."""
    q = np.clip(np.rint((x + offset[:, None]) * over(np.float32(1), step)[:, None]), 0, top)
    return (step * total(q, axis=1) - total(x, axis=1)) / np.float32(x.shape[1])


def _affine_steps(x: np.ndarray, top: np.float32) -> tuple[np.ndarray, np.ndarray]:
    """The step and the offset, both 0 or more, of every sub-block: the best of some tries, each fitted to its codes."""
    num = np.float32(x.shape[1])
    low = np.minimum(x.min(axis=1), np.float32(0))
    span = x.max(axis=1) - low
    sum_x, sum_xx = total(x, axis=1), total(x, x, 1)
    best_step, best_offset = over(span, np.full_like(span, top)), -low
    best_error = np.full_like(span, np.inf)
    above = x - low[:, None]
    q = np.empty_like(x)
    for shift in AFFINE_TRIES:
        np.multiply(above, over(np.full_like(span, top + shift), span)[:, None], out=q)
        np.rint(q, out=q)
        np.minimum(q, top, out=q)
        step, offset = _solved(total(q, axis=1), total(q, q, 1), total(x, q, 1), sum_x, num)
        error = sum_xx - step * total(x, q, 1) + offset * sum_x
        is_better = (error < best_error) & (step > 0)
        best_step, best_offset = np.where(is_better, step, best_step), np.where(is_better, offset, best_offset)
        best_error = np.where(is_better, error, best_error)
    return best_step, best_offset


def _solved(
    sum_q: np.ndarray, sum_qq: np.ndarray, sum_xq: np.ndarray, sum_x: np.ndarray, num: np.float32
) -> tuple[np.ndarray, np.ndarray]:
    """The step and the offset of least error for given codes, the offset not below 0."""
    step = over(num * sum_xq - sum_x * sum_q, num * sum_qq - sum_q * sum_q)
    offset = (step * sum_q - sum_x) / num
    is_free = offset > 0
    return np.where(is_free, step, over(sum_xq, sum_qq)), np.where(is_free, offset, np.float32(0))


def _refit(x: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    num = np.float32(x.shape[1])
    step, offset = _solved(total(q, axis=1), total(q, q, 1), total(x, q, 1), total(x, axis=1), num)
    return np.maximum(step, np.float32(0)), offset


def _refit_super(
    x: np.ndarray, q: np.ndarray, scales: np.ndarray, offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """d and dmin of least error for given codes, sub-scales and offsets; as float16, and not below 0."""
    num = np.float32(x.shape[1])
    aa, bb = total(total(q, q, 1), scales * scales), num * total(offsets, offsets)
    ab = total(total(q, axis=1), scales * offsets)
    xa, xb = total(total(x, q, 1), scales), total(total(x, axis=1), offsets)
    det = aa * bb - ab * ab
    d, dmin = over(xa * bb - xb * ab, det), over(xa * ab - xb * aa, det)
    is_free = (dmin > 0) & (det > 0)
    d, dmin = np.where(is_free, d, over(xa, aa)), np.where(is_free, dmin, np.float32(0))
    return as_f16(np.maximum(d, np.float32(0))), as_f16(dmin)


def _better(a: Affine, b: Affine) -> Affine:
    """Super-block by super-block the one of the smaller error."""
    new = b.error < a.error
    fields = {name: np.where(new, value, getattr(a, name)) for name, value in vars(b).items()}
    return Affine(**fields)


def fit_signed(x: np.ndarray, levels: np.ndarray, low_scale: int, high_scale: int) -> Signed:
    """x float32 [subs, elements, blocks] in levels, ascending; sub-scales low_scale .. high_scale."""
    nearest = Nearest(levels)
    step = _signed_steps(x, nearest)
    largest = np.take_along_axis(step, np.abs(step).argmax(axis=0)[None], 0)[0]
    best = None
    d = as_f16(largest / np.float32(low_scale))
    for _ in range(SIGNED_ROUNDS):
        scales = np.clip(np.rint(over(step, d)), low_scale, high_scale)
        stored = d * scales
        found_levels = nearest(x * over(np.float32(1), stored)[:, None])
        rest = x - stored[:, None] * found_levels
        found = Signed(d, scales, found_levels, total(total(rest, rest, 1)))
        best = found if best is None else _better_signed(best, found)
        xl, ll = total(x, found_levels, 1), total(found_levels, found_levels, 1)
        step = np.where(ll > 0, over(xl, ll), step)
        d = as_f16(over(total(xl, scales), total(ll, scales * scales)))
    if best is None:
        raise ValueError("no round was made")
    return best


def _better_signed(a: Signed, b: Signed) -> Signed:
    new = b.error < a.error
    return Signed(**{name: np.where(new, value, getattr(a, name)) for name, value in vars(b).items()})


def _signed_steps(x: np.ndarray, nearest: Nearest) -> np.ndarray:
    """The step of every sub-block, of either sign: the best of some tries, each fitted to its levels."""
    at = np.abs(x).argmax(axis=1)[:, None]
    extreme = np.take_along_axis(x, at, 1)[:, 0]
    best_step, best_gain = np.zeros_like(extreme), np.zeros_like(extreme)
    for side in (nearest.low, nearest.high):
        for shift in SIGNED_TRIES:
            wanted = side + (shift if side > 0 else -shift) * nearest.gap
            levels = nearest(x * over(np.full_like(extreme, wanted), extreme)[:, None])
            xl, ll = total(x, levels, 1), total(levels, levels, 1)
            gain = over(xl * xl, ll)  # what is taken off the squared error
            is_better = gain > best_gain
            best_step, best_gain = np.where(is_better, over(xl, ll), best_step), np.where(is_better, gain, best_gain)
    return best_step


class Nearest:
    """The nearest of some whole numbers: by rounding where they follow one another, else by a table of half steps."""

    def __init__(self, levels: np.ndarray) -> None:
        self.levels = levels.astype(np.float32)
        self.low, self.high = self.levels[0], self.levels[-1]
        self.gap = (self.high - self.low) / np.float32(len(levels) - 1)
        self._is_even = bool((np.diff(self.levels) == 1).all())
        edges = (self.levels[1:] + self.levels[:-1]) / np.float32(2)  # at half steps: the level is one within each
        steps = np.arange(2 * self.low, 2 * self.high + 1, dtype=np.float32)
        self._table = self.levels[np.searchsorted(edges, steps / np.float32(2), side="right")]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        if self._is_even:
            return np.clip(np.rint(x), self.low, self.high)
        steps = np.clip(np.floor(x * np.float32(2)), 2 * self.low, 2 * self.high) - 2 * self.low
        return np.take(self._table, steps.astype(np.int32))
