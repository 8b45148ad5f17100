"""What copies of boxes, and the kernels of the fast tier that make them, ask of a call."""

from __future__ import annotations

import torch

from samebits.kernels.cuda.hopper import is_served
from samebits.kernels.triton.attention.call import are_aligned
from samebits.kernels.triton.attention.fast.arguments import Arguments
from samebits.kernels.triton.lib.sizes import LARGEST_INT32

HEAD_SIZES = (64, 128)


def has_int_strides(q: torch.Tensor) -> bool:
    """Return whether the strides of a query's tokens and heads fit the C int in which kernels here take them."""
    return max(q.stride()[:2]) <= LARGEST_INT32


def can_copy(call: Arguments) -> bool:
    """Whether a call's queries and cache can be copied, and a kernel here has its numbers and runs on its device."""
    if call.constants["D"] not in HEAD_SIZES or call.constants["CAP"] or 0 in call.k.shape:
        return False
    has_types = call.q.dtype in (torch.float32, call.k.dtype)
    return has_types and has_int_strides(call.q) and are_aligned(call.q, call.k, call.v) and is_served(call.q.device)
