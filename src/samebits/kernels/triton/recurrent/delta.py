"""gated_delta_rule, in the row form."""

from __future__ import annotations

import torch

from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.registry import implements
from samebits.kernels.triton.recurrent.launch import Call, dense_last, key_too_wide, launch
from samebits.kernels.triton.recurrent.row_form import Batch, Gating
from samebits.kernels.triton.recurrent.runs import run_faults

FAULTS = run_faults("gated_delta_rule")


@implements("gated_delta_rule", tier=Tier.PORTABLE, when=lambda call: key_too_wide(call, "k"))
def gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    decay: torch.Tensor,
    dt_bias: torch.Tensor,
    state: torch.Tensor,
    ring: torch.Tensor,
    qo_indptr: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    *,
    scale: float = 1.0,
    v_heads: str = "grouped",
) -> tuple[torch.Tensor, ...]:
    a, b = dense_last(a), dense_last(b)
    call = Call(
        q=q,
        k=k,
        v=v,
        gating=Gating(a, a.stride(0), b, b.stride(0), decay, dt_bias, 0.0, 0.0),
        state=state,
        ring=ring,
        batch=Batch(qo_indptr, positions, slots),
        out=torch.empty(v.shape, dtype=v.dtype, device=v.device),
        skip=None,
        scale=scale,
        is_delta=True,
        is_tiled=v_heads == "tiled",
        faults=FAULTS,
    )
    launch(call)
    return call.out, state, ring
