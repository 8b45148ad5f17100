"""Activations in int8 blocks of 32: what every block-quantized matmul reads."""

from __future__ import annotations

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import BLOCK
from samebits.core.numerics.elementary import recip, round_to_int
from samebits.ops.record import FLOATS, Case, Input, Result, define_op
from samebits.ops.spaces import FINITE, row_space

F = np.float32
INV_127 = F(1.0 / 127.0)
SMALLEST_AMAX = F(2.0**-43)  # a block below it is all zeros, so that the scale of any other is settled
LARGEST_AMAX = F(2.0**80)  # so that 2^-50 * (127 * recip(amax)) is normal


def block_range(amax: np.ndarray, where: str, argument: str = "x") -> np.ndarray:
    """Which blocks are not flushed to zero; BadInput for NaN, Inf or a magnitude beyond 2^80."""
    if not (amax <= LARGEST_AMAX).all():
        raise BadInput(where, argument, "NaN, Inf or a magnitude above 2^80", "finite values")
    return amax >= SMALLEST_AMAX


def int8_blocks(x: np.ndarray, where: str, argument: str = "x") -> tuple[np.ndarray, np.ndarray]:
    """float32 [..., nb, 32] to (codes int8 [..., nb, 32], scale float32 [..., nb])."""
    amax = np.abs(x).max(axis=-1, initial=0)
    alive = block_range(amax, where, argument)
    to_code = F(127) * recip(np.where(alive, amax, F(1)))
    codes = round_to_int(x * to_code[..., None])
    codes = np.where(alive[..., None], codes, F(0)).astype(np.int8)
    return codes, np.where(alive, amax * INV_127, F(0))


@define_op(
    inputs=[Input("x", "... 32*NB", FLOATS, "rows of whole blocks of 32")],
    results=[
        Result("codes", "... 32*NB", "i8", "-127 .. 127"),
        Result("scales", "... NB", "f32", "one per block"),
    ],
    freedom="a code beyond a tie",
    cases=lambda: [
        *(Case(f"small-{f}", {"...": (3,), "NB": 4}, {}, {"x": f}) for f in FLOATS),
        Case("special", {"...": (4,), "NB": 3}, extra={"special": True}),
        Case("smollm2-135m", {"...": (5,), "NB": 18}),
        Case("llama-7b", {"...": (4,), "NB": 344}),
        Case("many-rows", {"...": (20,), "NB": 32}),
        Case("prompt-rows", {"...": (130,), "NB": 16}),
        Case("zero-rows", {"...": (0,), "NB": 2}),
    ],
    invariant_axes=("...",),
    space=lambda: row_space(width="NB", most=2048, values=(*FINITE, "up-to-2^80", "code-ties"), operations=BLOCK),
    smallest=-123,
)
def quantize_q8(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of 32 to int8: code = rint(x * (127 * recip(amax))), scale = amax * (1/127)."""
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK)
    codes, scales = int8_blocks(blocks, "quantize_q8")
    return codes.reshape(x.shape), scales
