"""Sizes of launches, on the host: Triton's own functions take microseconds, and a step asks thousands of times."""

from __future__ import annotations

LARGEST_INT32 = 2**31 - 1
MAX_PROGRAMS_YZ = 65535  # of a grid along y and z; along x there may be LARGEST_INT32


def cdiv(count: int, size: int) -> int:
    """How many of a size hold so many."""
    return -(-count // size)


def power_of_two(n: int) -> int:
    """The smallest that is no less than n."""
    return 1 << max(n - 1, 0).bit_length()
