"""The launches of one call: weights and prefill for sequences of several tokens, then decode for the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from samebits.kernels.record import OpCall
from samebits.kernels.triton.lib.chaining import chained
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import UNFUSED
from samebits.kernels.triton.recurrent.decode import NEW_U, decode_kernel
from samebits.kernels.triton.recurrent.prefill import prefill_kernel
from samebits.kernels.triton.recurrent.row_form import RECORD_LEN, Batch, Form, Gating, Memory, Rows
from samebits.kernels.triton.recurrent.runs import CHUNK, Faults, num_pieces
from samebits.kernels.triton.recurrent.weights import weights_kernel

WIDEST_KEY = 256  # elements of K: what the tree of head_dots has room for
DECODE_COLUMNS = 64  # of V, of a program
PREFILL_COLUMNS = 32
MOST_LONG = 32  # sequences of several tokens that are walked at once, and chunks whose weights are made at once
SHARE = 8  # value heads of one key head whose weights a program makes


@dataclass(frozen=True)
class Call:
    """One call in the row form: q and k [T, Hk, K], v [T, H, V], gates, memory, the batch; out [T, H, V] is dense.

    skip  [H] what of v is added to the output, or None
    scale of q, for the delta rule
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    gating: Gating
    state: torch.Tensor
    ring: torch.Tensor
    batch: Batch
    out: torch.Tensor
    skip: torch.Tensor | None
    scale: float
    is_delta: bool
    is_tiled: bool
    faults: Faults


def key_too_wide(call: OpCall, name: str) -> str | None:
    width = call.inputs[name].shape[-1]
    return f"heads of {width}: {WIDEST_KEY} at most" if isinstance(width, int) and width > WIDEST_KEY else None


def dense_last(x: torch.Tensor) -> torch.Tensor:
    return x if x.shape[-1] == 1 or x.stride(-1) == 1 else x.contiguous()


def _rows(x: torch.Tensor) -> Rows:
    return Rows(x, x.stride(0), x.stride(1))


def launch(call: Call) -> None:
    """Fills `out` and moves state and ring on."""
    (num_tokens, num_heads, value_dim), (_, key_heads, key_dim) = call.v.shape, call.q.shape
    num_seqs, device = len(call.batch.slots_ptr), call.v.device
    if not call.out.numel():
        return
    q, k, v = (dense_last(x) for x in (call.q, call.k, call.v))
    form = Form(*map(tl.constexpr, (key_heads, num_heads, key_dim, value_dim, call.is_tiled, call.is_delta)))
    levels = (triton.cdiv(key_dim, 8) - 1).bit_length()  # of the tree over runs of 8
    common: dict[str, Any] = {
        **{"memory": Memory(call.state, call.ring), "batch": call.batch, "form": form, "FAULTS": call.faults},
        **{"num_seqs": num_seqs, "num_tokens": num_tokens, "num_slots": len(call.state)},
        **{"fault_ptr": fault_word(device), **chained(device), **UNFUSED},
    }
    outputs = {"v": _rows(v), "out_ptr": call.out, "skip_ptr": call.skip}

    def floats(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.float32, device=device)

    records = None
    if num_tokens > 1:
        pieces = num_pieces(num_tokens, num_seqs)
        most = 1 if num_tokens <= num_seqs else MOST_LONG  # one token each, as a rule: then they have nothing to do
        records = floats(pieces, num_heads, RECORD_LEN.value)
        turned = floats(2, *q.shape)
        parts = triton.cdiv(num_heads // key_heads, SHARE)
        weights_kernel[(key_heads * parts, min(pieces, most))](
            q=_rows(q), k=_rows(k), gating=call.gating, record_ptr=records, turned_ptr=turned, scale=call.scale,
            K_PAD=8 << levels, SHARE=SHARE, num_warps=4, **common,
        )  # fmt: skip
        columns = min(PREFILL_COLUMNS, max(8, triton.next_power_of_2(value_dim)))
        grid = (num_heads * triton.cdiv(value_dim, columns), min(num_seqs, most))
        prefill_kernel[grid](
            turned_ptr=turned, k=_rows(k), **outputs, record_ptr=records, WIDTH=columns, zero=0, num_warps=4,
            scratch_ptr=floats(grid[0] * grid[1], CHUNK.value, columns), **common,
        )  # fmt: skip
    columns = min(DECODE_COLUMNS, max(8, triton.next_power_of_2(value_dim)))
    grid = (num_heads * triton.cdiv(value_dim, columns), num_seqs)
    decode_kernel[grid](
        q=_rows(q), k=_rows(k), **outputs, gating=call.gating, record_ptr=records, scale=call.scale,
        scratch_ptr=floats(grid[0] * grid[1], NEW_U.value + columns), WIDTH=columns, LEVELS=levels, num_warps=4,
        **common,
    )  # fmt: skip
