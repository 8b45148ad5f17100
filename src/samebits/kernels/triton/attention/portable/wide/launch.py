"""Which calls have wide heads, and how their kernels are launched."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl

from samebits.kernels.triton.attention.call import CUT_LEN, RUN_LEN, Call
from samebits.kernels.triton.attention.portable.decode import CLEARING, MAX_HEAD_SIZE
from samebits.kernels.triton.attention.portable.decode_join import decode_join
from samebits.kernels.triton.attention.portable.general import seq_block
from samebits.kernels.triton.attention.portable.prefill import ROOM, ROWS
from samebits.kernels.triton.attention.portable.records import records_of
from samebits.kernels.triton.attention.portable.wide.decode import wide_decode_scores, wide_decode_values
from samebits.kernels.triton.attention.portable.wide.prompt import WideTile, attend_wide
from samebits.kernels.triton.lib.chaining import chained
from samebits.kernels.triton.lib.devices import multiprocessors
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import UNFUSED
from samebits.kernels.triton.lib.sizes import power_of_two

LARGEST_HEAD = 1024
LEAST_HEADS, MOST_HEADS = 8, 64  # query heads of a program: fewer would leave most rows of a dot empty
POSITIONS = 32  # of a tile of scores
COLUMNS = 128  # of values that a program sums


def heads_of_program(group: int) -> int:
    """The largest divisor of a group that a program takes."""
    return max(n for n in range(1, MOST_HEADS + 1) if group % n == 0)


def is_wide(call: Call) -> bool:
    """Whether these kernels take the call."""
    largest = max(call.head_size, call.v_dim)
    runs_in_pages = call.table["page_size"] % RUN_LEN == 0 or not call.table["TABLE"]
    is_plain = {call.k.format, call.v.format} <= {"f16", "bf16"} and not call.numbers["MASK"]
    is_shared = heads_of_program(call.group) >= LEAST_HEADS
    return MAX_HEAD_SIZE < largest <= LARGEST_HEAD and runs_in_pages and is_plain and is_shared


def _sizes(call: Call) -> dict[str, Any]:
    """What all kernels take beside the records."""
    return {
        **{name: call.table[name] for name in ("num_seqs", "num_entries", "num_pages")},
        "num_tokens": call.num_tokens,
        "window": call.numbers["window"],
        "zero": 0.0,
        "fault_ptr": fault_word(call.q.device),
        **chained(call.q.device),
        **UNFUSED,
    }


def launch_wide_prompt(call: Call) -> None:
    """All sequences with more than one query."""
    heads, device = heads_of_program(call.group), call.q.device
    tiles = -(-call.num_tokens // (ROWS // heads)) + call.num_sequences
    programs = min(multiprocessors(device), call.q.shape[1] // heads * tiles)
    room = min(ROOM, -(-call.num_cells // CUT_LEN) * CUT_LEN)
    pitch = -(-call.v_dim // COLUMNS) * COLUMNS
    tile = WideTile(
        M=ROWS,
        N=POSITIONS,
        COLUMNS=COLUMNS,
        ALL_KEPT=call.num_cells <= room,
        SEQ_BLOCK=seq_block(call.num_sequences),
    )
    attend_wide[(programs,)](
        **records_of(call, heads),
        tile=WideTile(*map(tl.constexpr, tile)),
        s_ptr=torch.empty((programs, ROWS, room + CUT_LEN), dtype=torch.float32, device=device),
        o_ptr=torch.empty((programs, ROWS, pitch), dtype=torch.float32, device=device),
        room=room,
        o_pitch=pitch,
        num_warps=8,
        **_sizes(call),
    )


def launch_wide_decode(call: Call) -> None:
    """All sequences with one query, and the rows beyond the last sequence."""
    heads = heads_of_program(call.group)
    parts = call.q.shape[1] // heads
    records, rows = records_of(call, heads), max(16, power_of_two(heads))
    sizes = {**_sizes(call), "M": rows, "N": POSITIONS, "SEQ_BLOCK": seq_block(call.num_sequences)}
    tiles, slots = (call.num_cells // n + call.num_sequences + 1 for n in (POSITIONS, CUT_LEN))
    device = call.q.device
    scores = torch.empty((parts, rows, tiles, POSITIONS), dtype=torch.float32, device=device)
    largest = torch.empty((parts, tiles, rows), dtype=torch.float32, device=device)
    out = torch.empty((parts, slots, heads, call.v_dim), dtype=torch.float32, device=device)
    total = torch.empty((parts, slots, 2, heads), dtype=torch.float32, device=device)
    shared = {name: records[name] for name in ("tables", "logits", "heads")}
    wide_decode_scores[(tiles, parts)](
        records["queries"],
        records["keys"],
        **shared,
        s_ptr=scores,
        max_ptr=largest,
        num_tiles=tiles,
        num_warps=4 if rows <= 16 else 8,
        **sizes,
    )
    wide_decode_values[(slots, parts, -(-call.v_dim // COLUMNS))](
        records["values"],
        **shared,
        s_ptr=scores,
        max_ptr=largest,
        o_ptr=out,
        l_ptr=total,
        num_tiles=tiles,
        num_slots=slots,
        COLUMNS=COLUMNS,
        num_warps=4 if rows <= 16 else 8,
        **sizes,
    )
    _launch_join(call, heads, slots, out, total)


def _launch_join(call: Call, heads: int, slots: int, out: torch.Tensor, total: torch.Tensor) -> None:
    table, numbers = call.table, call.numbers
    decode_join[(max(call.num_sequences, min(call.num_tokens, CLEARING)), call.q.shape[1])](
        out,
        total,
        call.out,
        call.lse,
        **{name: table[name] for name in ("qo_ptr", "last_ptr", "indptr_ptr", "num_seqs", "num_entries", "page_size")},
        TABLE=table["TABLE"],
        sinks_ptr=call.extras["sinks"],
        fault_ptr=fault_word(call.q.device),
        num_tokens=call.num_tokens,
        num_slots=slots,
        window=numbers["window"],
        **{name: numbers[name] for name in ("CAUSAL", "WINDOW", "SINKS")},
        LSE=call.lse is not None,
        HEADS=heads,
        NUM_PARTS=call.q.shape[1] // heads,
        V_DIM=call.v_dim,
        V_PAD=power_of_two(call.v_dim),
        num_warps=4,
        **chained(call.q.device),
        **UNFUSED,
    )
