"""The launches of one call: weights and prefill for sequences of several tokens, then decode for the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl

from samebits.kernels.record import OpCall
from samebits.kernels.triton.lib.chaining import chained
from samebits.kernels.triton.lib.devices import ON_AMD, multiprocessors
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import FUSED, INTERPRETED, UNFUSED
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.kernels.triton.recurrent.decode import NEW_U, decode_kernel
from samebits.kernels.triton.recurrent.prefill import prefill_kernel
from samebits.kernels.triton.recurrent.registers.kernel import prefill_registers
from samebits.kernels.triton.recurrent.registers.memory import SHARED_BYTES
from samebits.kernels.triton.recurrent.registers.weights import WEIGHTS_BYTES, weights_registers
from samebits.kernels.triton.recurrent.row_form import RECORD_LEN, Batch, Form, Gating, Memory, Rows
from samebits.kernels.triton.recurrent.runs import CHUNK, Faults, num_pieces
from samebits.kernels.triton.recurrent.tensor_cores import prefill_tensor_cores, solving_kernel
from samebits.kernels.triton.recurrent.weights import weights_kernel

WIDEST_KEY = 256  # elements of K: what the tree of head_dots has room for
DECODE_COLUMNS = 64  # of V, of a program
DECODE_WARPS = 4
PREFILL_COLUMNS = 32
FAST_STAGES = 3  # chunks on their way
REGISTERS = {16: {}, 32: {"maxnreg": 128}}  # by columns: two programs to a multiprocessor, four
MOST_LONG, MOST_CHUNKS = 32, 512  # sequences that are walked at once, and chunks whose weights are made at once
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
    is_fast: bool = False


def key_too_wide(call: OpCall, name: str) -> str | None:
    width = call.inputs[name].shape[-1]
    return f"heads of {width}: {WIDEST_KEY} at most" if isinstance(width, int) and width > WIDEST_KEY else None


def dense_last(x: torch.Tensor) -> torch.Tensor:
    return x if x.shape[-1] == 1 or x.stride(-1) == 1 else x.contiguous()


def _rows(x: torch.Tensor) -> Rows:
    return Rows(x, x.stride(0), x.stride(1))


def registers_serve(k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether registers/kernel.py takes these heads: their rows, and those of a ring, lie at multiples of 16 bytes."""
    is_whole = k.shape[2] in (32, 64, 128) and v.shape[2] % 32 == 0 and v.shape[1] % 4 == 0
    strides = (*k.stride()[:2], *v.stride()[:2])
    aligned = not any(x.data_ptr() % 16 for x in (k, v)) and not any(stride % 4 for stride in strides)
    return is_whole and aligned and not ON_AMD


def registers_width(num_columns: int, key_dim: int, device: torch.device) -> int:
    """Columns of a program: 16 where 32 would give every multiprocessor one program at most."""
    return 16 if key_dim > 32 and num_columns <= 32 * multiprocessors(device) else 32


def tensor_core_width(num_columns: int, value_dim: int, device: torch.device) -> int:
    """Columns of a program, 16 a warp: as few as fill a device with two programs to a multiprocessor, or many."""
    return 16 if num_columns <= 32 * multiprocessors(device) else 64 if value_dim % 64 == 0 else 32


def launch(call: Call) -> None:
    """Fills `out` and moves state and ring on."""
    (num_tokens, num_heads, value_dim), (_, key_heads, key_dim) = call.v.shape, call.q.shape
    num_seqs, device = len(call.batch.slots_ptr), call.v.device
    if not call.out.numel():
        return
    q, k, v = (dense_last(x) for x in (call.q, call.k, call.v))
    form = Form(*map(tl.constexpr, (key_heads, num_heads, key_dim, value_dim, call.is_tiled, call.is_delta)))
    levels = (cdiv(key_dim, 8) - 1).bit_length()  # of the tree over runs of 8
    common: dict[str, Any] = {
        **{"memory": Memory(call.state, call.ring), "batch": call.batch, "form": form, "FAULTS": call.faults},
        **{"num_seqs": num_seqs, "num_tokens": num_tokens, "num_slots": len(call.state)},
        **{"fault_ptr": fault_word(device), **chained(device), **UNFUSED},
    }
    outputs = {"v": _rows(v), "out_ptr": call.out, "skip_ptr": call.skip}

    def floats(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.float32, device=device)

    common["record_ptr"] = None
    if num_tokens > 1:
        pieces = num_pieces(num_tokens, num_seqs)
        records = floats(pieces, num_heads, RECORD_LEN.value)
        few = num_tokens <= num_seqs  # one token each, as a rule: then there is nothing to do
        most_chunks, most_seqs = (1, 1) if few else (min(pieces, MOST_CHUNKS), min(num_seqs, MOST_LONG))
        weights = {"q": _rows(q), "k": _rows(k), "gating": call.gating, "scale": call.scale, "num_warps": 4}
        prefill = {"k": _rows(k), **outputs, "num_warps": 4}
        common["record_ptr"] = records
        if registers_serve(k, v):
            scaled = floats(*q.shape)
            memories = [floats(size // 4) if INTERPRETED else None for size in (WEIGHTS_BYTES, SHARED_BYTES)]
            weights_registers[(key_heads, most_chunks)](**weights, scaled_ptr=scaled, shared_ptr=memories[0], **common)
            if call.is_fast:
                solving_kernel[(pieces * num_heads,)](records, num_warps=1, **chained(device), **FUSED)
                del prefill["skip_ptr"]
                width = tensor_core_width(num_heads * value_dim * most_seqs, value_dim, device)
                prefill_tensor_cores[(num_heads * value_dim // width, most_seqs)](
                    **prefill | common | FUSED | {"num_warps": width // 16},
                    scaled_ptr=scaled, WIDTH=width, STAGES=FAST_STAGES, EMULATE=INTERPRETED,
                )  # fmt: skip
            else:
                width = registers_width(num_heads * value_dim * most_seqs, key_dim, device)
                prefill_registers[(num_heads * value_dim // width, most_seqs)](
                    **prefill, scaled_ptr=scaled, shared_ptr=memories[1], WIDTH=width, **common, **REGISTERS[width]
                )
        else:
            turned = floats(2, *q.shape)
            parts = cdiv(num_heads // key_heads, SHARE)
            weights_kernel[(key_heads * parts, most_chunks)](
                **weights, turned_ptr=turned, K_PAD=8 << levels, SHARE=SHARE, **common
            )
            columns = min(PREFILL_COLUMNS, max(8, power_of_two(value_dim)))
            grid = (num_heads * cdiv(value_dim, columns), most_seqs)
            scratch = floats(grid[0] * grid[1], CHUNK.value, columns)
            prefill_kernel[grid](**prefill, turned_ptr=turned, WIDTH=columns, zero=0, scratch_ptr=scratch, **common)
    columns = min(DECODE_COLUMNS, max(8, power_of_two(value_dim)))
    programs = num_heads * cdiv(value_dim, columns) * num_seqs
    decode_kernel[(programs,)](
        q=_rows(q), k=_rows(k), **outputs, gating=call.gating, scale=call.scale,
        scratch_ptr=floats(programs, NEW_U.value + columns), WIDTH=columns, LEVELS=levels,
        num_warps=DECODE_WARPS, **common,
    )  # fmt: skip
