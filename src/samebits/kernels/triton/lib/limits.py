"""Bounds of float types, as kernels compare with them."""

from __future__ import annotations

import triton.language as tl

NEG_INF = tl.constexpr(float("-inf"))
LARGEST_F32 = tl.constexpr(3.4028234663852886e38)
LARGEST_BF16 = tl.constexpr(2.0**63)  # of an operand, see docs/numerics.md, section 2
