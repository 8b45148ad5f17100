"""What products on int8 blocks refuse: codes and scales that quantize_q8 does not make."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.codes import ONES, SIGNS
from samebits.kernels.triton.lib.faults import fault
from samebits.kernels.triton.lib.rows import fault_where


def activation_faults(op: str) -> dict[str, int]:
    """The faults of an op that takes int8 blocks, as kernels that check them take them."""
    codes = fault(op, "codes", "-128", "-127 .. 127, as quantize_q8 makes them")
    return {"BAD_CODES": codes, "BAD_SCALES": fault(op, "scales", "NaN or Inf", "finite values")}


@triton.jit
def lowest_codes(words):
    """int32, not 0 where one of the four codes of a word is -128."""
    x = words ^ SIGNS
    return (x - ONES) & ~x & SIGNS  # a byte of 0 borrows


@triton.jit
def not_finite(scales):
    return (tl.abs(scales) < float("inf")) == 0


@triton.jit
def check_activations(
    a_ptr, sa_ptr, fault_ptr, NB: tl.constexpr, THREADS: tl.constexpr, BAD_CODES: tl.constexpr, BAD_SCALES: tl.constexpr
):
    """Stores a fault where one of the codes of NB blocks, given as words, is -128 or one of their scales not finite.

    One program of a launch does this beside the others, so that none of them waits for it.
    """
    at = tl.arange(0, THREADS)[:, None] * 4 + tl.arange(0, 4)[None, :]
    found = tl.zeros([THREADS, 4], tl.int32)
    for start in tl.static_range(0, NB * 8, THREADS * 4):
        found = found | lowest_codes(tl.load(a_ptr + start + at, mask=start + at < NB * 8, other=0))
    refused = tl.zeros([THREADS, 4], tl.int1)
    for start in tl.static_range(0, NB, THREADS * 4):
        refused = refused | not_finite(tl.load(sa_ptr + start + at, mask=start + at < NB, other=0.0))
    fault_where(fault_ptr, BAD_CODES, found != 0)
    fault_where(fault_ptr, BAD_SCALES, refused)
