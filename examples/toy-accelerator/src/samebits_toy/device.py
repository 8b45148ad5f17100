"""The device library: unpack, pack, and tile primitives on float32 lanes. Kernels use nothing else.

exp and its like are taken from samebits.core.numerics, which is plain numpy. On a real device they are twenty lines
each, transliterated operation by operation: the device's own would have other bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import FORMATS
from samebits.core.numerics.counter import threefry, to_uniform
from samebits.core.numerics.elementary import exp, log, recip, round_to_int, rsqrt, sigmoid
from samebits.core.tiers import Tier
from samebits.kernels.record import KernelTable
from samebits_toy.memory import TILE, Window

__all__ = ["exp", "log", "recip", "rsqrt", "sigmoid", "threefry", "to_uniform"]

F = np.float32
table = KernelTable("toy-tiles")  # every kernel module adds to it
CUT, RUN, HEAD_RUN, CUT_BLOCKS = 256, 16, 8, 8
BLOCK_BYTES = {"q8_0": 34, "q4_0": 18, "q4_1": 20}  # formats of 32 elements that the unpacker knows
Lanes = np.ndarray | np.float32  # a number stands for all lanes
Step = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (accumulators, an element number for each) -> accumulators


def strips(num_rows: int) -> Iterator[np.ndarray]:
    """Row numbers of one row of tiles after another."""
    for start in range(0, num_rows, TILE):
        yield np.arange(start, min(start + TILE, num_rows))


def unpack(window: Window, rows: np.ndarray) -> np.ndarray:
    """Rows of a float tensor or of one in blocks as float32, as the format defines them."""
    if window.format not in BLOCK_BYTES:
        return window.gather(rows).astype(F)
    codes, d, m = unpack_blocks(window, rows)
    values = mul(codes.astype(F), d[..., None])
    return (values if m is None else add(values, m[..., None])).reshape(len(rows), 32 * window.buffer.width)


def unpack_blocks(window: Window, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Rows taken apart: codes int8 [n, blocks, 32]; scales and, where there are any, offsets: float32 [n, blocks]."""
    num_bytes = BLOCK_BYTES[window.format]
    blocks = window.gather(rows).view(np.uint8).reshape(len(rows), window.buffer.width, num_bytes)
    if window.format == "q8_0":
        return blocks[..., 2:].view(np.int8), _half(blocks, 0), None
    nibbles = blocks[..., -16:]  # element j in the low half of byte j, element 16 + j in its high half
    codes = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1).view(np.int8)
    if window.format == "q4_0":
        return codes - np.int8(8), _half(blocks, 0), None
    return codes, _half(blocks, 0), _half(blocks, 2)


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The float16 at a byte of every block, as float32."""
    return blocks[..., at : at + 2].copy().view(np.float16)[..., 0].astype(F)


def pack(window: Window, lanes: np.ndarray) -> None:
    """Lanes into a window, in its shape: float32 settled and rounded once, nowhere else; integers as they are."""
    is_float = lanes.dtype == F
    stored = (rounded(settle(lanes), window.format) if is_float else lanes).astype(window.buffer.dtype)
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
    """Blocks of int8 [m, blocks, 32] by [n, blocks, 32] to their sums [blocks, m, n] in float32.

    Every partial sum is an integer below 2^24, so this is exact, whatever the order.
    """
    return a.astype(F).swapaxes(0, 1) @ b.astype(F).transpose(1, 2, 0)


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


def block_sum(terms: np.ndarray) -> np.ndarray:
    """Block order: terms [blocks, ...], chains over the 8 terms of a cut, the cuts in order."""
    return _chain(_runs(0, len(terms), CUT_BLOCKS, terms.shape[1:], lambda lanes, b: add(lanes, terms[b])))


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
