"""One-query attention over 16-bit caches: K pass, V pass, join. Exact maximum first, K and V read once.

A fixed number of programs share all sequences with one query, in tiles of 16 positions (K) and cuts of 256 (V);
sequences with more queries are left alone. Scratch is bounded by the page table: every sequence's positions have their
own range in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from samebits.kernels.cuda.attention.decode import attend, serves
from samebits.kernels.triton.attention.call import CUT_LEN, RUN_LEN, Call
from samebits.kernels.triton.attention.portable.decode_join import decode_join
from samebits.kernels.triton.attention.portable.decode_scores import decode_scores
from samebits.kernels.triton.attention.portable.decode_values import decode_values
from samebits.kernels.triton.attention.portable.general import seq_block
from samebits.kernels.triton.lib.cache_views import CacheView
from samebits.kernels.triton.lib.chaining import chained
from samebits.kernels.triton.lib.devices import PTX_HERE, multiprocessors
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import UNFUSED
from samebits.kernels.triton.lib.sizes import power_of_two

MAX_HEADS = 8
MAX_HEAD_SIZE = 256


@dataclass(frozen=True)
class PassSizes:
    """Sizes of the two passes up to a number of sequences times parts; all of them give the same bits.

    k_programs, v_programs   of the K pass and the V pass, per multiprocessor
    runs                     of a cut side by side in the V pass, one warp each: 1 or 16
    """

    most_parts: int
    k_stages: int
    k_programs: int
    runs: int
    v_programs: int


PASS_SIZES = (
    PassSizes(32, k_stages=1, k_programs=4, runs=16, v_programs=1),
    PassSizes(128, k_stages=1, k_programs=8, runs=16, v_programs=1),
    PassSizes(512, k_stages=4, k_programs=8, runs=1, v_programs=16),
    PassSizes(1 << 31, k_stages=4, k_programs=8, runs=1, v_programs=8),
)
K_WARPS, K_REGISTERS, V_REGISTERS = 2, 128, 112
CLEARING = 16  # programs at least that clear rows beyond the last sequence


def decodes(call: Call) -> bool:
    """Whether these kernels take the call's one-query sequences."""
    formats = {"f16", "bf16"}
    runs_in_pages = call.table["page_size"] % RUN_LEN == 0 or not call.table["TABLE"]
    sizes = max(call.head_size, call.v_dim) <= MAX_HEAD_SIZE and min(call.head_size, call.v_dim) >= 16
    return {call.k.format, call.v.format} <= formats and runs_in_pages and sizes and not call.numbers["MASK"]


def shuffles(cells: CacheView) -> bool:
    """Whether a row's lanes are neighbours and may talk to each other: where Triton loads rows as vectors."""
    return PTX_HERE and all(number % 16 == 0 for number in (*cells.strides, cells.data.data_ptr()))


def at_most(registers: int, elements: int) -> dict[str, int]:
    """The launch option that bounds a thread's registers, where there is one and they hold a part's elements."""
    return {"maxnreg": registers} if PTX_HERE and elements <= 512 else {}


class Launch:
    """What the three kernels of one call share: sizes of the passes, scratch and arguments by name."""

    def __init__(self, call: Call) -> None:
        self.call, self.device = call, call.q.device
        self.heads = call.heads_of_part(MAX_HEADS)
        self.parts = call.q.shape[1] // self.heads
        self.sizes = next(p for p in PASS_SIZES if call.num_sequences * self.parts <= p.most_parts)
        self.h_pad = max(2, power_of_two(self.heads))
        self.d_pad, self.v_pad = max(64, power_of_two(call.head_size)), max(32, power_of_two(call.v_dim))
        self.tiles, self.slots = (call.num_cells // n + call.num_sequences + 1 for n in (RUN_LEN, CUT_LEN))
        count = multiprocessors(self.device)
        self.k_programs = min(count * self.sizes.k_programs, self.parts * self.tiles)
        self.v_programs = min(count * self.sizes.v_programs, self.parts * self.slots)
        self.scores = self.scratch(self.parts, self.tiles, RUN_LEN, self.h_pad)
        self.largest = self.scratch(self.k_programs + call.num_sequences * self.parts, self.heads)
        self.out = self.scratch(self.parts, self.slots, self.heads, call.v_dim)
        self.total = self.scratch(self.parts, self.slots, 2, self.heads)

    def scratch(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.float32, device=self.device)

    def common(self) -> dict[str, Any]:
        """Of all three."""
        table, numbers = self.call.table, self.call.numbers
        return {
            **{name: table[name] for name in ("qo_ptr", "last_ptr", "indptr_ptr", "num_seqs", "num_entries")},
            **{name: table[name] for name in ("page_size", "TABLE")},
            **{name: numbers[name] for name in ("window", "WINDOW")},
            "fault_ptr": fault_word(self.device),
            "num_tokens": self.call.num_tokens,
            "HEADS": self.heads,
            "NUM_PARTS": self.parts,
            **chained(self.device),
            **UNFUSED,
        }

    def of_passes(self) -> dict[str, Any]:
        """Of the K pass and the V pass."""
        return {
            **self.common(),
            **{name: self.call.table[name] for name in ("indices_ptr", "num_pages")},
            "num_tiles": self.tiles,
            "GROUP": self.call.group,
            "H_PAD": self.h_pad,
            "SEQ_BLOCK": seq_block(self.call.num_sequences),
        }

    def of_values(self) -> dict[str, Any]:
        """Of the V pass and the join."""
        return {
            "num_slots": self.slots,
            "V_DIM": self.call.v_dim,
            "V_PAD": self.v_pad,
            "sinks_ptr": self.call.extras["sinks"],
            "SINKS": self.call.numbers["SINKS"],
        }


def _launch_scores(launch: Launch) -> None:
    call = launch.call
    decode_scores[(launch.k_programs,)](
        call.q,
        call.k.data,
        launch.scores,
        launch.largest,
        slopes_ptr=call.extras["alibi_slopes"],
        q_row=call.q.stride(0),
        q_head=call.q.stride(1),
        **dict(zip(("k_page", "K_SLOT", "k_head"), call.k.strides, strict=True)),
        **{name: call.numbers[name] for name in ("scale", "cap", "inv_cap", "CAP", "SLOPES")},
        **launch.of_passes(),
        FORMAT=call.k.format,
        D=call.head_size,
        D_PAD=launch.d_pad,
        STAGES=launch.sizes.k_stages,
        SHUFFLE=shuffles(call.k),
        num_warps=K_WARPS,
        **at_most(K_REGISTERS, launch.heads * launch.d_pad),
    )


def _launch_values(launch: Launch) -> None:
    call, runs = launch.call, launch.sizes.runs
    decode_values[(launch.v_programs,)](
        call.v.data,
        launch.scores,
        launch.largest,
        launch.scratch(launch.v_programs, RUN_LEN, launch.heads, launch.v_pad + 1) if runs > 1 else None,
        launch.out,
        launch.total,
        k_programs=launch.k_programs,
        **dict(zip(("v_page", "V_SLOT", "v_head"), call.v.strides, strict=True)),
        **launch.of_passes(),
        **launch.of_values(),
        FORMAT=call.v.format,
        RUNS=runs,
        SHUFFLE=shuffles(call.v),
        num_warps=runs,
        **at_most(V_REGISTERS if runs == 1 else 128, launch.heads * launch.v_pad),
    )


def launch_decode(call: Call) -> None:
    """All sequences with one query, and the rows beyond the last sequence."""
    if serves(call):
        attend(call, is_second=call.num_tokens > 1)
        return
    launch = Launch(call)
    _launch_scores(launch)
    _launch_values(launch)
    decode_join[(max(call.num_sequences, min(call.num_tokens, CLEARING)), call.q.shape[1])](
        launch.out,
        launch.total,
        call.out,
        call.lse,
        **launch.common(),
        **launch.of_values(),
        CAUSAL=call.numbers["CAUSAL"],
        LSE=call.lse is not None,
        num_warps=1,
    )
