"""ssm_scan, in the row form: C is q, B is k, and u = dt * x."""

from __future__ import annotations

import torch

from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.registry import implements
from samebits.kernels.triton.recurrent.launch import Call, dense_last, key_too_wide, launch
from samebits.kernels.triton.recurrent.row_form import Batch, Gating
from samebits.kernels.triton.recurrent.runs import run_faults
from samebits.ops.ssm import NO_LIMIT

FAULTS = run_faults("ssm_scan")


@implements("ssm_scan", tier=Tier.PORTABLE, when=lambda call: key_too_wide(call, "B"))
def ssm_scan(
    x: torch.Tensor,
    dt: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    decay: torch.Tensor,
    dt_bias: torch.Tensor,
    state: torch.Tensor,
    ring: torch.Tensor,
    qo_indptr: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    D: torch.Tensor | None = None,
    *,
    dt_min: float = 0.0,
    dt_max: float = NO_LIMIT,
) -> tuple[torch.Tensor, ...]:
    dt = dense_last(dt)
    call = Call(
        q=C,
        k=B,
        v=x,
        gating=Gating(dt, dt.stride(0), None, 0, decay, dt_bias, dt_min, dt_max),
        state=state,
        ring=ring,
        batch=Batch(qo_indptr, positions, slots),
        out=torch.empty(x.shape, dtype=x.dtype, device=x.device),
        skip=D,
        scale=1.0,
        is_delta=False,
        is_tiled=False,
        faults=FAULTS,
    )
    launch(call)
    return call.out, state, ring
