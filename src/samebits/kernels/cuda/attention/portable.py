"""What the portable tier's kernels here share: the calls that they can take, and the definition's constants."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from samebits.core.numerics import elementary, settling
from samebits.kernels.cuda.attention.boxes import HEAD_SIZES, has_int_strides
from samebits.kernels.cuda.hopper import is_served
from samebits.kernels.triton.attention import call as faults
from samebits.kernels.triton.attention.call import RUN_LEN, Call

FAULTS = ("BAD_TABLE", "BAD_PAGE", "BAD_QUERY", "BAD_COUNT", "BAD_SCORE", "BAD_VALUE", "BAD_SINKS")


def can_take(call: Call) -> bool:
    """Whether a call's cache can be copied in boxes, and its scores are products times a scale and nothing else."""
    plain = call.lse is None and not any(call.numbers[name] for name in ("CAP", "SLOPES", "MASK"))
    if not plain or call.v_dim != call.head_size or call.head_size not in HEAD_SIZES:
        return False
    keys = call.k.data
    if call.k.format not in ("f16", "bf16") or call.v.format != call.k.format or 0 in keys.shape:
        return False
    if call.q.dtype not in (torch.float32, keys.dtype) or not has_int_strides(call.q):
        return False
    if (call.table["TABLE"] and call.table["page_size"] % RUN_LEN) or not call.is_aligned:
        return False
    return is_served(call.q.device)


def flags_of(call: Call) -> tuple[tuple[str, int], ...]:
    """What the kernels are compiled with: types, and what a call has."""
    return (
        ("BF16", int(call.k.format == "bf16")),
        ("WIDE_Q", int(call.q.dtype == torch.float32)),
        ("HAS_TABLE", int(call.table["TABLE"])),
        ("HAS_SINKS", int(call.numbers["SINKS"])),
        *((name, int(call.numbers[name])) for name in ("CAUSAL", "WINDOW")),
    )


def _floats(*values: float | np.floating) -> str:
    return ",".join(f"{float(np.float32(x))!r}f" for x in values)


@cache
def arithmetic() -> tuple[tuple[str, object], ...]:
    """The definition's constants, as C writes them, and numbers of faults."""
    names = ("LOG2E", "LN2_HIGH", "LN2_LOW", "ROUND_MAGIC", "EXP_LOWEST", "EXP_HIGHEST")
    return (
        *((name, _floats(getattr(elementary, name))) for name in names),
        ("EXP_POLY", _floats(*elementary.EXP_POLY)),
        ("SMALLEST", _floats(settling.SMALLEST)),
        *((name, getattr(faults, name).value) for name in FAULTS),
    )
