"""gated_delta_rule, in the row form."""

from __future__ import annotations

from collections.abc import Callable

import torch

from samebits.core.tiers import Tier
from samebits.kernels.record import OpCall
from samebits.kernels.triton.lib.devices import ON_AMD
from samebits.kernels.triton.lib.registry import INTERPRETED, implements
from samebits.kernels.triton.recurrent.launch import Call, dense_last, key_too_wide, launch
from samebits.kernels.triton.recurrent.row_form import Batch, Gating
from samebits.kernels.triton.recurrent.runs import run_faults

FAULTS = run_faults("gated_delta_rule")


def _on_tensor_cores(call: OpCall) -> str | None:
    """What registers/kernel.py takes of heads, since its weights are taken too."""
    num_heads, value_dim = (int(n) for n in call.inputs["v"].upper_shape[1:])
    key_dim = call.inputs["k"].shape[-1]
    if ON_AMD and not INTERPRETED:
        return "an AMD GPU"
    if key_dim not in (32, 64, 128) or value_dim % 32 or num_heads % 4:
        return f"{num_heads} heads of {key_dim} by {value_dim}; heads by fours, of 32, 64 or 128 by a multiple of 32"
    return None


def _rule(name: str, *, is_fast: bool) -> Callable[..., tuple[torch.Tensor, ...]]:
    def run(
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
            is_fast=is_fast,
        )
        launch(call)
        return call.out, state, ring

    run.__name__ = name
    return run


implements("gated_delta_rule", tier=Tier.FAST, when=_on_tensor_cores)(_rule("gated_delta_rule_fast", is_fast=True))
implements("gated_delta_rule", tier=Tier.PORTABLE, when=lambda call: key_too_wide(call, "k"))(
    _rule("gated_delta_rule", is_fast=False)
)
