"""Kernels on independent rows, a strip of 32 rows at a time.

A kernel takes windows and returns float32 lanes; the executable packs them into the result's memory.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from samebits.core.tiers import Tier
from samebits.kernels.record import OpCall
from samebits_toy import device as dev
from samebits_toy.memory import Window

F = np.float32
Results = tuple[np.ndarray]


def by_strips(x: Window, width: int, compute: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Results:
    """compute(row numbers, float32 rows of x) for every strip, joined: [rows, width]."""
    parts = [compute(rows, dev.unpack(x, rows)) for rows in dev.strips(x.num_rows)]
    return (np.concatenate([np.zeros((0, width), F), *parts]),)


def row_or_rows(y: Window, x: Window, rows: np.ndarray) -> np.ndarray:
    """The rows of y that go with these rows of x: one vector may serve all."""
    return y.vector().astype(F) if len(y.shape) < len(x.shape) else dev.unpack(y, rows)


def is_matrix(call: OpCall) -> str | None:
    rank = len(call.inputs["x"].shape)
    return None if rank > 1 else "toy-tiles holds a vector as a column: rows need a tensor of two axes or more"


@dev.table.implements("add", tier=Tier.PORTABLE, when=is_matrix)
def add(x: Window, y: Window) -> Results:
    return by_strips(x, x.shape[-1], lambda rows, a: dev.add(a, row_or_rows(y, x, rows)))


@dev.table.implements("mul", tier=Tier.PORTABLE, when=is_matrix)
def mul(x: Window, y: Window) -> Results:
    return by_strips(x, x.shape[-1], lambda rows, a: dev.mul(a, row_or_rows(y, x, rows)))


@dev.table.implements("scale", tier=Tier.PORTABLE, when=is_matrix)
def scale(x: Window, *, factor: float) -> Results:
    return by_strips(x, x.shape[-1], lambda _, a: dev.mul(a, F(factor)))


@dev.table.implements("silu_and_mul", tier=Tier.PORTABLE, when=is_matrix)
def silu_and_mul(x: Window) -> Results:
    half = x.shape[-1] // 2

    def strip(_: np.ndarray, a: np.ndarray) -> np.ndarray:
        gate, up = a[:, :half], a[:, half:]
        return dev.mul(dev.mul(gate, dev.sigmoid(gate)), up)

    return by_strips(x, half, strip)


@dev.table.implements("rms_norm", tier=Tier.PORTABLE, when=is_matrix)
def rms_norm(x: Window, weight: Window | None = None, bias: Window | None = None, *, eps: float) -> Results:
    width = x.shape[-1]
    one_over_width = F(1.0 / width if width else 0.0)  # a constant of the kernel, rounded on the host

    def strip(_: np.ndarray, a: np.ndarray) -> np.ndarray:
        mean = dev.mul(dev.settle(dev.row_sum(dev.mul(a, a))), one_over_width)
        y = dev.settle(dev.mul(a, dev.rsqrt(dev.add(mean, F(eps)))[:, None]))
        y = y if weight is None else dev.mul(y, weight.vector().astype(F))
        return y if bias is None else dev.add(y, bias.vector().astype(F))

    return by_strips(x, width, strip)


def plain_softmax(call: OpCall) -> str | None:
    for name, is_asked in (("sinks", "sinks" in call.inputs), ("soft_cap", call.attrs["soft_cap"] != 0)):
        if is_asked:
            return f"toy-tiles softmax has no {name}"
    return is_matrix(call)


def masked(x: Window, mask: Window | None, rows: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is kept, and s minus its exact maximum (-Inf where not kept)."""
    keep = np.ones(s.shape, bool) if mask is None else row_or_rows(mask, x, rows).astype(bool) | np.zeros(s.shape, bool)
    s = np.where(keep, s, F(-np.inf))
    maximum = s.max(axis=1, keepdims=True, initial=-np.inf)
    return keep, s - np.where(maximum == -np.inf, F(0), maximum)


@dev.table.implements("softmax", tier=Tier.FAST, when=plain_softmax)
def softmax_native(
    x: Window, mask: Window | None = None, sinks: Window | None = None, *, scale: float, soft_cap: float
) -> Results:
    """The device's own exponential, sum and division. Nobody says how they round, so `fast` is all it can claim."""

    def strip(rows: np.ndarray, a: np.ndarray) -> np.ndarray:
        p = np.exp(masked(x, mask, rows, dev.mul(a, F(scale)))[1])
        total = p.sum(axis=1, keepdims=True)
        return np.divide(p, total, out=np.zeros_like(p), where=total > 0)

    return by_strips(x, x.shape[-1], strip)


@dev.table.implements("softmax", tier=Tier.PORTABLE, when=plain_softmax)
def softmax(
    x: Window, mask: Window | None = None, sinks: Window | None = None, *, scale: float, soft_cap: float
) -> Results:
    def strip(rows: np.ndarray, a: np.ndarray) -> np.ndarray:
        keep, s = masked(x, mask, rows, dev.mul(a, F(scale)))
        p = np.where(keep, dev.exp(s), F(0))
        total = dev.row_sum(p)
        inverse = np.where(total > 0, dev.recip(np.where(total > 0, total, F(1))), F(0))
        return dev.mul(p, inverse[:, None])

    return by_strips(x, x.shape[-1], strip)


def unpackable(call: OpCall) -> str | None:
    fmt = call.inputs["table"].format
    known = ("f32", "f16", "bf16", *dev.BLOCK_BYTES)
    return None if fmt in known else f"toy-tiles unpacks {', '.join(known)}, not {fmt}"


@dev.table.implements("embedding", tier=Tier.PORTABLE, when=unpackable)
def embedding(table: Window, ids: Window, *, format: str) -> Results:
    return (dev.unpack(table, ids.vector()),)
