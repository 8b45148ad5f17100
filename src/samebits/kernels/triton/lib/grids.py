"""Grids of launches: a GPU takes 2^31 - 1 programs along x, and 65,535 along y and z.

The rule of all kernels here: what grows with tokens, pages or sequences is an int64 before it is multiplied for an
offset, and lies along x of a grid or along a folded y. tests/triton/test_triton_offsets.py holds them to it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.sizes import MAX_PROGRAMS_YZ, cdiv


def folded(x: int, y: int) -> tuple[int, ...]:
    """Return a grid of x by at least y programs, with y cut into pieces along z where it is too long.

    Kernels take `folded_program` for the number along y. The last piece may pass y: programs there must do nothing.
    """
    if y <= MAX_PROGRAMS_YZ:
        return x, y
    pieces = cdiv(y, MAX_PROGRAMS_YZ)
    return x, cdiv(y, pieces), pieces


@triton.jit
def folded_program():
    """The program's number along a folded y."""
    return tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
