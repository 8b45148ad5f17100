"""Launches of registers/kernel.py and tiles.py: sequences with several queries over 16-bit caches."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl

from samebits.kernels.cuda.attention import prompts
from samebits.kernels.triton.attention.call import CUT_LEN, Call
from samebits.kernels.triton.attention.portable.decode import MAX_HEADS
from samebits.kernels.triton.attention.portable.general import seq_block
from samebits.kernels.triton.attention.portable.records import records_of
from samebits.kernels.triton.attention.portable.registers.kernel import SHARED_ROWS, attend_registers
from samebits.kernels.triton.attention.portable.registers.memory import NUM_TILES
from samebits.kernels.triton.attention.portable.tiles import Tile, attend_tiles
from samebits.kernels.triton.lib.chaining import chained
from samebits.kernels.triton.lib.devices import multiprocessors
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import INTERPRETED, UNFUSED
from samebits.kernels.triton.lib.sizes import power_of_two

ROWS = 64  # of a tile
ROOM = 4096  # positions whose scores are kept


def launch_tiles(call: Call) -> None:
    """All sequences with more than one query."""
    if prompts.serves(call):
        prompts.attend(call)
    elif registers_serve(call):
        launch_registers(call)
    else:
        launch_dots(call)


def registers_serve(call: Call) -> bool:
    """Heads of whole pieces of 8 elements, of which shared memory holds three tiles."""
    sizes = (call.head_size, call.v_dim)
    whole = max(sizes) <= 128 and not any(size % 8 for size in sizes)
    return whole and call.is_aligned


def _sizes(call: Call) -> dict[str, Any]:
    """What both kernels take beside the records: sizes of the batch, and how they are launched."""
    return {
        **{name: call.table[name] for name in ("num_seqs", "num_entries", "num_pages")},
        "num_tokens": call.num_tokens,
        "window": call.numbers["window"],
        "fault_ptr": fault_word(call.q.device),
        **chained(call.q.device),
        **UNFUSED,
    }


def _programs(call: Call, heads: int, per_multiprocessor: int) -> int:
    tiles = -(-call.num_tokens // (ROWS // heads)) + call.num_sequences
    return min(per_multiprocessor * multiprocessors(call.q.device), call.q.shape[1] // heads * tiles)


def launch_registers(call: Call) -> None:
    """By registers/kernel.py; two programs share a multiprocessor, their registers fill it."""
    heads = call.heads_of_part(MAX_HEADS)
    programs = _programs(call, heads, 2)
    room = min(ROOM, -(-call.num_cells // CUT_LEN) * CUT_LEN)
    pitch = room + SHARED_ROWS
    attend_registers[(programs,)](
        **records_of(call, heads),
        s_ptr=torch.empty((programs, pitch, ROWS), dtype=torch.float32, device=call.q.device),
        shared_ptr=torch.empty(NUM_TILES * ROWS * 64, dtype=torch.int32) if INTERPRETED else None,
        room=room,
        pitch=pitch,
        SEQ_BLOCK=32,  # a warp's: so nothing is exchanged in shared memory, and the kernel's own may be all of 48 KB
        num_warps=4,
        **_sizes(call),
    )


def launch_dots(call: Call) -> None:
    """By tiles.py: any head size."""
    heads = call.heads_of_part(MAX_HEADS)
    programs = _programs(call, heads, 1)
    room = min(ROOM, -(-call.num_cells // CUT_LEN) * CUT_LEN)
    tile = Tile(
        M=ROWS,
        N=64,
        SLICES=power_of_two(call.head_size) // 16,
        V_PAD=max(16, power_of_two(call.v_dim)),
        ALL_KEPT=call.num_cells <= room,
        SEQ_BLOCK=seq_block(call.num_sequences),
    )
    attend_tiles[(programs,)](
        **records_of(call, heads),
        tile=Tile(*map(tl.constexpr, tile)),
        s_ptr=torch.empty((programs, ROWS, room + CUT_LEN), dtype=torch.float32, device=call.q.device),
        room=room,
        zero=0.0,
        num_warps=8,
        **_sizes(call),
    )
