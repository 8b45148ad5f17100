"""The device library: unpack, pack, and tile primitives on float32 lanes. Kernels use nothing else.

exp, recip, rsqrt and sigmoid are taken from samebits.core.numerics.elementary, which is plain numpy. On a real device
they are twenty lines each, transliterated operation by operation: the device's own would have other bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import FORMATS
from samebits.core.numerics.elementary import exp, recip, round_to_int, rsqrt, sigmoid
from samebits.core.tiers import Tier
from samebits.kernels.record import KernelTable
from samebits_toy.memory import TILE, Window

__all__ = ["exp", "recip", "rsqrt", "sigmoid"]

F = np.float32
table = KernelTable("toy-tiles")  # every kernel module adds to it
CUT, RUN, HEAD_RUN, CUT_BLOCKS = 256, 16, 8, 8
Lanes = np.ndarray | np.float32  # a number stands for all lanes
Step = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (accumulators, an element number for each) -> accumulators


def strips(num_rows: int) -> Iterator[np.ndarray]:
    """Row numbers of one row of tiles after another."""
    for start in range(0, num_rows, TILE):
        yield np.arange(start, min(start + TILE, num_rows))


def unpack(window: Window, rows: np.ndarray) -> np.ndarray:
    """Rows of a float or q8_0 tensor as float32, exactly."""
    if window.format == "q8_0":
        codes, d = unpack_q8_0(window, rows)
        return (codes.astype(F) * d[..., None]).reshape(len(rows), -1)
    return window.gather(rows).astype(F)


def unpack_q8_0(window: Window, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a q8_0 tensor taken apart: codes int8 [n, blocks, 32], scales float32 [n, blocks]."""
    blocks = window.gather(rows).view(np.uint8).reshape(len(rows), window.buffer.width, 34)
    return blocks[..., 2:].view(np.int8), blocks[..., :2].copy().view(np.float16)[..., 0].astype(F)


def pack(window: Window, lanes: np.ndarray) -> None:
    """float32 lanes into a window, settled and rounded once to its format: the only place where a result is."""
    stored = rounded(settle(lanes), window.format).astype(window.buffer.dtype)
    window.scatter(np.arange(window.num_rows), stored.reshape(window.num_rows, window.buffer.width))


def settle(lanes: np.ndarray) -> np.ndarray:
    """+0 in the place of -0 and of every magnitude below 2^-50. Lanes that were unpacked are settled already."""
    return np.where(np.abs(lanes) < F(2.0**-50), F(0), lanes)


def add(a: np.ndarray, b: Lanes) -> np.ndarray:
    return a + b


def mul(a: np.ndarray, b: Lanes) -> np.ndarray:
    return a * b


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c with one rounding. Only for products that are exact: elsewhere it is another number."""
    return (a.astype(np.float64) * b + c).astype(F)


def dot32(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """int8 [m, 32] by int8 [n, 32] to int32 [m, n]: exact, whatever the order."""
    return a.astype(np.int32) @ b.astype(np.int32).T


def rounded(lanes: np.ndarray, fmt: str) -> np.ndarray:
    """Settled float32 lanes rounded to a float format, as settled float32 again; beyond the format is infinity."""
    with np.errstate(over="ignore"):
        return settle(lanes.astype(FORMATS[fmt].dtype).astype(F))


def operand(lanes: np.ndarray, fmt: str) -> np.ndarray:
    """float32 lanes rounded to a format for use in a product: exact if the format has 16 bits."""
    values = rounded(lanes, fmt)
    magnitude = np.abs(values)
    if not (magnitude <= (F(2.0**63) if fmt == "bf16" else np.finfo(F).max)).all():
        raise BadInput("toy", "operand", "NaN, Inf or a value beyond the range", f"finite {fmt} values")
    return values


def quantize(lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float32 [n, 32 * blocks] to codes int8 [n, blocks, 32] and scales float32 [n, blocks]."""
    blocks = lanes.reshape(len(lanes), lanes.shape[1] // 32, 32)
    amax = np.abs(blocks).max(axis=-1, initial=0)
    if not (amax <= F(2.0**80)).all():
        raise BadInput("toy", "x", "NaN, Inf or a magnitude above 2^80", "finite values")
    is_alive = amax >= F(2.0**-43)
    to_code = mul(recip(np.where(is_alive, amax, F(1))), F(127))
    codes = round_to_int(mul(blocks, np.where(is_alive, to_code, F(0))[..., None])).astype(np.int8)
    return codes, np.where(is_alive, mul(amax, F(1 / 127)), F(0))


def row_sum(lanes: np.ndarray) -> np.ndarray:
    """Row order: 16 lanes walk over a cut, then the lanes are added in order; cuts in order."""
    total = np.zeros(len(lanes), F)
    for cut in range(0, lanes.shape[1], CUT):
        slots = np.zeros((len(lanes), RUN), F)
        for start in range(cut, min(cut + CUT, lanes.shape[1]), RUN):
            part = lanes[:, start : start + RUN]
            slots[:, : part.shape[1]] = add(slots[:, : part.shape[1]], part)
        total = add(total, _chain(slots.T))
    return total


def stream(num_elements: int, shape: tuple[int, ...], step: Step) -> np.ndarray:
    """Stream order: runs of 16 elements, the runs of a cut in order, the cuts in order; all chains from +0."""
    total = np.zeros(shape, F)
    for cut in range(0, num_elements, CUT):
        total = add(total, _chain(_runs(cut, min(cut + CUT, num_elements), RUN, shape, step)))
    return total


def head(num_elements: int, shape: tuple[int, ...], step: Step) -> np.ndarray:
    """Head order: runs of 8 elements, joined by an adjacent-pair tree padded with +0."""
    runs = _runs(0, num_elements, HEAD_RUN, shape, step)
    while len(runs) > 1:
        runs = np.concatenate([runs, np.zeros((len(runs) % 2, *shape), F)])
        runs = add(runs[0::2], runs[1::2])
    return runs[0] if len(runs) else np.zeros(shape, F)


def _runs(start: int, stop: int, length: int, shape: tuple[int, ...], step: Step) -> np.ndarray:
    """A chain over every run of consecutive elements, the runs side by side: [runs, *shape]."""
    lanes = np.zeros((-(-(stop - start) // length), *shape), F)
    for i in range(min(length, stop - start)):
        elements = np.arange(start + i, stop, length)  # number i of every run
        lanes[: len(elements)] = step(lanes[: len(elements)], elements)
    return lanes


def _chain(terms: np.ndarray) -> np.ndarray:
    """terms [n, ...] added in order from +0."""
    total = np.zeros(terms.shape[1:], F)
    for term in terms:
        total = add(total, term)
    return total


def refuted_tiers() -> dict[Tier, str]:
    """What the arithmetic itself rules out, found by trying: run at every start, on the device."""
    x = np.full(1, 1 + 2.0**-12, F)
    if add(mul(x, x), -(x * x))[0] != 0:
        return {Tier.PORTABLE: "it contracts a product and a sum into one rounding"}
    return {}
