"""What kernels branch on when they read a tiled weight: how codes are stored, and what the term of a block has.

Constants of a kernel's compilation, by the format's name; docs/numerics.md, section 4, has the terms.
"""

from __future__ import annotations

import triton


@triton.constexpr_function
def is_super(fmt):
    """Eight blocks share d, and m where there is one."""
    return fmt in ("q4_k", "q5_k", "q6_k", "q2_k", "q3_k", "iq4_xs")


@triton.constexpr_function
def has_halves(fmt):
    """The halves of a block have scales of their own, in one plane; iq4_xs stores its one scale twice."""
    return fmt in ("q6_k", "nvfp4", "q3_k", "iq4_xs")


@triton.constexpr_function
def has_scaled_codes(fmt):
    """Codes times their half's scale are small: a block has one sum of those, and one of codes times minimums."""
    return fmt == "q2_k"


@triton.constexpr_function
def has_offset(fmt):
    """m of each block."""
    return fmt in ("q4_1", "q5_1")


@triton.constexpr_function
def has_sub_offset(fmt):
    """A scale and a minimum of each block, under d and m of eight."""
    return fmt in ("q4_k", "q5_k")


@triton.constexpr_function
def has_fifth_bits(fmt):
    return fmt in ("q5_0", "q5_1", "q5_k")


@triton.constexpr_function
def is_around_eight(fmt):
    """Nibbles stand for themselves minus 8; q3_k's are stored like that."""
    return fmt in ("q4_0", "q3_k")


@triton.constexpr_function
def has_e2m1(fmt):
    """Nibbles stand for twice an E2M1 number."""
    return fmt in ("nvfp4", "mxfp4")


@triton.constexpr_function
def has_levels(fmt):
    """Nibbles stand for the levels of formats/iq4_nl.py."""
    return fmt in ("iq4_nl", "iq4_xs")
