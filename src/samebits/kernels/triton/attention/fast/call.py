"""What the launchers of the fast tier share on the host: what they refuse alike, their results, their numbers."""

from __future__ import annotations

import math
from typing import Any

import torch

from samebits.core.errors import BadInput
from samebits.kernels.record import OpCall
from samebits.kernels.triton.attention.call import OP, WIDEST_WINDOW
from samebits.kernels.triton.lib.faults import fault
from samebits.kernels.triton.lib.sizes import power_of_two

BAD_PAGE = fault(OP, "kv_indices", "an index out of range", "0 .. pages of the cache - 1")
LOG2E = math.log2(math.e)


def refused(call: OpCall) -> str | None:
    """Why no kernel of this tier serves a call: alibi slopes, a custom mask or a scale that is not positive."""
    for name in ("alibi_slopes", "custom_mask"):
        if name in call.inputs:
            return f"{name} is given"
    scale = call.attrs["sm_scale"]
    return "an sm_scale that is not positive" if scale is not None and scale <= 0 else None


def results_for(q: torch.Tensor, v_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(out [T, heads, v_dim], lse [T, heads]), not yet written."""
    out = torch.empty((*q.shape[:2], v_dim), dtype=q.dtype, device=q.device)
    return out, torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)


def check_room(kv_indices: torch.Tensor | None, num_sequences: int, num_pages: int) -> None:
    """Refuses a cache that has no page for every sequence where no table says which are whose."""
    if kv_indices is None and num_sequences > num_pages:
        raise BadInput(OP, "k_cache", f"{num_pages} pages", f"one per sequence: {num_sequences}")


def logit_numbers(head_size: int, sm_scale: float | None, soft_cap: float, window_left: int) -> tuple[float, ...]:
    """(scale, cap, window): logits in powers of 2; with a cap, the scale is of what tanh takes."""
    scale = 1.0 / math.sqrt(head_size) if sm_scale is None else sm_scale
    return scale / soft_cap if soft_cap else scale * LOG2E, soft_cap * LOG2E, min(window_left, WIDEST_WINDOW)


def batch_constants(num_sequences: int, num_heads: int, page_size: int, **given: Any) -> dict[str, Any]:
    """The constants that all kernels take; `given` are arguments of the call."""
    return {
        "BATCH": max(power_of_two(num_sequences), 64),
        "HEADS": num_heads,
        "PAGE": page_size,
        "HAS_TABLE": given["kv_indices"] is not None,
        "CAUSAL": given["causal"],
        "WINDOW": given["window_left"] >= 0,
        "CAP": given["logits_soft_cap"] != 0,
        "HAS_SINKS": given["sinks"] is not None,
        "HAS_LSE": given["return_lse"],
    }
