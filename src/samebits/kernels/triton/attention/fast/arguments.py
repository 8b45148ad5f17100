"""What the launchers of the tiers fast and invariant share on the host: what they serve, and arguments of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from samebits.core.errors import BadInput
from samebits.kernels.record import OpCall
from samebits.kernels.triton.attention.call import OP
from samebits.kernels.triton.attention.fast.call import (
    batch_constants,
    check_room,
    logit_numbers,
    refused,
    results_for,
)
from samebits.kernels.triton.lib.cache_views import cache_views
from samebits.kernels.triton.lib.registry import INTERPRETED
from samebits.kernels.triton.lib.sizes import power_of_two

LARGEST_HEAD = 256
FEW_ROWS = 64  # a sequence of more rows (queries x group) goes to the prefill kernel where that one is launched


@dataclass(frozen=True)
class Shape:
    """A kernel's tile and how it is launched.

    programs   of the decode kernel on one multiprocessor
    share      units that one of them takes at least
    registers  a thread's at most, so that all programs fit (NVIDIA only)
    parts      of a cut item that are loaded at once, at most
    """

    block_m: int
    block_n: int
    warps: int
    stages: int
    programs: int = 1
    share: int = 1
    registers: int | None = None
    parts: int = 16


def served(call: OpCall) -> str | None:
    """16-bit K and V of one format and head size, a positive scale; no alibi, no custom mask, no MLA."""
    inputs, attrs = call.inputs, call.attrs
    k = inputs["k_cache"]
    v = inputs.get("v_cache", k)
    if k.format not in ("f16", "bf16") or v.format != k.format:
        return f"caches in {k.format} and {v.format}; f16 or bf16, both the same, are read"
    if len(k.shape) == 3:
        return "an MLA cache"
    size = inputs["q"].shape[-1]
    if not isinstance(size, int) or size % 16 or size > LARGEST_HEAD:
        return f"head size {size}; multiples of 16 to {LARGEST_HEAD} are served"
    if attrs["v_dim"] not in (0, size):
        return f"v_dim {attrs['v_dim']} beside head size {size}"
    return refused(call)


@dataclass(frozen=True)
class Arguments:
    """The arguments that decode and prefill kernels take, in their order, and the results they write."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    others: tuple[torch.Tensor | None, ...]
    sizes: tuple[int, int, int, int]
    strides: tuple[int, ...]
    logits: tuple[float, ...]
    constants: dict[str, Any]
    result: torch.Tensor | tuple[torch.Tensor, torch.Tensor]

    @property
    def tensors(self) -> tuple[torch.Tensor | None, ...]:
        return (self.q, self.k, self.v, *self.others)

    @property
    def num_rows(self) -> int:
        return self.q.shape[0] * self.constants["GROUP"]

    @property
    def num_kv_heads(self) -> int:
        return self.constants["HEADS"] // self.constants["GROUP"]

    @property
    def num_sequences(self) -> int:
        return self.sizes[0]

    @property
    def num_positions(self) -> int:
        """Positions that the table, or without one the cache, has room for: a bound of the lengths' sum."""
        return (self.sizes[2] if self.constants["HAS_TABLE"] else self.num_sequences) * self.constants["PAGE"]

    @property
    def has_many(self) -> bool:
        """Whether the prefill kernel is launched: some sequence may have many rows, which decode would serve slowly."""
        return self.q.shape[0] > self.num_sequences and self.num_rows > FEW_ROWS

    def how(self, shape: Shape) -> dict[str, Any]:
        """The constants of a tile and the launch options."""
        # reading through a table takes twice the stages: the pages first, then the rows
        stages = shape.stages if self.constants["HAS_TABLE"] else shape.stages // 2 + 1
        how = {"BLOCK_M": shape.block_m, "BLOCK_N": shape.block_n, "STAGES": stages, "num_warps": shape.warps}
        return {**self.constants, **how, **({"maxnreg": shape.registers} if shape.registers else {})}

    def prefill_programs(self, block_m: int) -> int:
        """As many as there can be tiles: one for every full tile, and one for the rest of a long sequence."""
        num_tiles = self.num_rows // block_m + min(self.num_sequences, self.num_rows // (FEW_ROWS + 1))
        return num_tiles * self.num_kv_heads


def arguments_of(
    q: torch.Tensor, k_cache: torch.Tensor, qo_indptr: torch.Tensor, kv_last_page_len: torch.Tensor, **given: Any
) -> Arguments:
    """The arguments of a call; results are allocated, nothing is launched."""
    num_tokens, num_heads, head_size = q.shape
    kv_indices, num_sequences = given["kv_indices"], kv_last_page_len.shape[0]
    out, lse = results_for(q, head_size)
    k, v = (view.data for view in cache_views(k_cache, given["v_cache"], given["layout"]))
    check_room(kv_indices, num_sequences, k.shape[0])
    if k.stride() != v.stride():
        raise BadInput(OP, "v_cache", f"strides {v.stride()}", f"those of k_cache: {k.stride()}")
    q = q if q.stride(2) == 1 else q.contiguous()
    own = {
        "D": head_size,
        "BLOCK_D": max(power_of_two(head_size), 16),
        "GROUP": num_heads // k.shape[2],
        "EMULATE": INTERPRETED,
    }
    logits = (given["sm_scale"], given["logits_soft_cap"], given["window_left"])
    return Arguments(
        q=q,
        k=k,
        v=v,
        others=(qo_indptr, kv_last_page_len, given["kv_indptr"], kv_indices, given["sinks"], out, lse),
        sizes=(num_sequences, num_tokens, 0 if kv_indices is None else kv_indices.shape[0], k.shape[0]),
        strides=(q.stride(0), q.stride(1), *k.stride()[:3]),
        logits=logit_numbers(head_size, *logits),
        constants={**own, **batch_constants(num_sequences, num_heads, k.shape[1], **given)},
        result=(out, lse) if given["return_lse"] else out,
    )
