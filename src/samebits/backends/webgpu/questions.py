"""What the start-up probe asks a device, and the right answers: numpy's, and those of the references."""

from __future__ import annotations

from functools import cache

import numpy as np

from samebits.backends.arithmetic import COUNT, operands
from samebits.core.numerics.elementary import exp
from samebits.core.numerics.rounding import BF16, F16, narrow
from samebits.core.numerics.settling import settle

NUM_HALVES = 1 << 16
# The numbers by which the shader knows them.
MUL, MUL_ADD, BARE_MUL_ADD, ADD, SUB, EXP, SIGNED, UNSIGNED, DOT, WIDEN_F16, WIDEN_BF16, NARROW = range(12)
INTEGER_EDGES = (0, 1, 2**24 + 1, 2**24 + 3, 2**25 + 2, 2**25 + 6, 2**31 - 1, 2**31, 2**31 + 128, 2**32 - 1, 0x80807F7F)
LOW_BITS = (0x0000, 0x8000, 0x7FFF, 0x8001, 0x1000, 0x3000, 0x0FFF, 0x1001)  # halfway between halves, and beside


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """float32 (p, q) [COUNT]: a third with a sum halfway between two floats, a third with such a product."""
    rng = np.random.default_rng(1)
    p, q = (settle(rng.standard_normal(COUNT).astype(np.float32) * np.float32(2.0**8)) for _ in range(2))
    ties = COUNT // 3
    p[:ties], q[:ties] = 2**23 + np.arange(ties), 0.5
    p[ties : 2 * ties] = q[ties : 2 * ties] = 1 + (2 * np.arange(ties) + 1) * 2.0**-12
    return p, q


def exponents() -> np.ndarray:
    """float32 [COUNT]: arguments of exp within its bounds and beyond."""
    return settle(np.linspace(-40, 90, COUNT, dtype=np.float32))


def integers() -> tuple[np.ndarray, np.ndarray]:
    """uint32 [COUNT] twice: words of four codes, and integers that no float32 holds."""
    rng = np.random.default_rng(2)
    first, second = (rng.integers(0, 2**32, COUNT, dtype=np.uint32) for _ in range(2))
    first[: len(INTEGER_EDGES)] = INTEGER_EDGES
    return first, second


def floats() -> np.ndarray:
    """float32 [NUM_HALVES]: settled ones of every magnitude, many of them halfway between two halves; no NaN."""
    low = np.resize(np.array(LOW_BITS, np.uint32), NUM_HALVES)
    low[::3] = np.random.default_rng(3).integers(0, NUM_HALVES, len(low[::3]), dtype=np.uint32)
    order = np.random.default_rng(4).permutation(NUM_HALVES).astype(np.uint32)
    spread = ((order << np.uint32(16)) | low).view(np.float32)
    return settle(np.where(np.isnan(spread), np.float32(1), spread))


def questions() -> dict[str, tuple[int, tuple[np.ndarray, ...]]]:
    """Name -> (the kind of question, up to three operands of four bytes per element)."""
    (a, b, c), (p, q), (first, second) = operands(), pairs(), integers()
    halves = np.arange(NUM_HALVES, dtype=np.uint32)
    return {
        "products": (MUL, (a, b)),
        "sums": (MUL_ADD, (a, b, c)),
        "bare sums": (BARE_MUL_ADD, (a, b, c)),
        "pairs' products": (MUL, (p, q)),
        "pairs' sums": (ADD, (p, q)),
        "pairs' differences": (SUB, (p, q)),
        "exponentials": (EXP, (exponents(),)),
        "int32": (SIGNED, (first,)),
        "uint32": (UNSIGNED, (first,)),
        "dots": (DOT, (first, second)),
        "wide float16": (WIDEN_F16, (halves,)),
        "wide bfloat16": (WIDEN_BF16, (halves,)),
        "halves": (NARROW, (floats(),)),
    }


@cache
def right_answers() -> dict[str, np.ndarray]:
    """Name -> an answer of four bytes for each question; of "halves" a float16 and a bfloat16, uint16 [.., 2]."""
    (a, b, c), (p, q), (first, second) = operands(), pairs(), integers()
    halves = np.arange(NUM_HALVES, dtype=np.uint16)
    codes = [words.view(np.int8).reshape(COUNT, 4).astype(np.int32) for words in (first, second)]
    with np.errstate(under="ignore", invalid="ignore"):
        return {
            "products": a * b,
            "sums": a * b + c,
            "bare sums": a * b + c,
            "pairs' products": p * q,
            "pairs' sums": p + q,
            "pairs' differences": p - q,
            "exponentials": exp(exponents()),
            "int32": first.view(np.int32).astype(np.float32),
            "uint32": first.astype(np.float32),
            "dots": (codes[0] * codes[1]).sum(axis=1, dtype=np.int32),
            "wide float16": halves.view(F16).astype(np.float32),
            "wide bfloat16": halves.view(BF16).astype(np.float32),
            "halves": np.stack([narrow(floats(), dtype).view(np.uint16) for dtype in (F16, BF16)], axis=1),
        }
