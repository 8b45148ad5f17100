"""Launches of registers/kernel.py and tiles.py: sequences with several queries over 16-bit caches."""

from __future__ import annotations

from typing import Any

import torch

from samebits.kernels.triton.attention.call import CUT_LEN, Call
from samebits.kernels.triton.attention.portable.decode import heads_of_part
from samebits.kernels.triton.attention.portable.general import power_of_two, seq_block
from samebits.kernels.triton.attention.portable.registers.kernel import SHARED_ROWS, attend_registers
from samebits.kernels.triton.attention.portable.registers.memory import NUM_TILES
from samebits.kernels.triton.attention.portable.tiles import attend_tiles
from samebits.kernels.triton.lib.chaining import chained
from samebits.kernels.triton.lib.devices import multiprocessors
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import INTERPRETED, UNFUSED

ROWS = 64  # of a tile
ROOM = 4096  # positions whose scores are kept


def launch_tiles(call: Call) -> None:
    """All sequences with more than one query."""
    launch_registers(call) if registers_serve(call) else launch_dots(call)


def _aligned(x: torch.Tensor) -> bool:
    """Whether every head starts at a multiple of 16 bytes."""
    return x.data_ptr() % 16 == 0 and not any(x.element_size() * stride % 16 for stride in x.stride()[:-1])


def registers_serve(call: Call) -> bool:
    """Heads of whole pieces of 8 elements, of which shared memory holds three tiles."""
    sizes = (call.head_size, call.v_dim)
    whole = max(sizes) <= 128 and not any(size % 8 for size in sizes)
    return whole and all(_aligned(x) for x in (call.q, call.k.data, call.v.data))


def _arguments(call: Call, heads: int, parts: int) -> dict[str, Any]:
    """What both kernels take."""
    return {
        **call.table,
        **{name: value for name, value in call.numbers.items() if name != "MASK"},
        "slopes_ptr": call.extras["alibi_slopes"],
        "sinks_ptr": call.extras["sinks"],
        "fault_ptr": fault_word(call.q.device),
        "num_tokens": call.num_tokens,
        "q_row": call.q.stride(0),
        "q_head": call.q.stride(1),
        **dict(zip(("k_page", "k_slot", "k_head"), call.k.strides, strict=True)),
        **dict(zip(("v_page", "v_slot", "v_head"), call.v.strides, strict=True)),
        "LSE": call.lse is not None,
        "K_FORMAT": call.k.format,
        "V_FORMAT": call.v.format,
        "GROUP": call.group,
        "HEADS": heads,
        "NUM_PARTS": parts,
        "D": call.head_size,
        "V_DIM": call.v_dim,
        **chained(call.q.device),
        **UNFUSED,
    }


def _programs(call: Call, heads: int, parts: int, per_multiprocessor: int) -> int:
    most = per_multiprocessor * multiprocessors(call.q.device)
    return min(most, parts * (-(-call.num_tokens // (ROWS // heads)) + call.num_sequences))


def launch_registers(call: Call) -> None:
    """By registers/kernel.py; two programs share a multiprocessor, their registers fill it."""
    heads = heads_of_part(call.group)
    parts = call.q.shape[1] // heads
    programs = _programs(call, heads, parts, 2)
    room = min(ROOM, -(-call.num_cells // CUT_LEN) * CUT_LEN)
    pitch = room + SHARED_ROWS
    s = torch.empty((programs, pitch, ROWS), dtype=torch.float32, device=call.q.device)
    shared = torch.empty(NUM_TILES * ROWS * 64, dtype=torch.int32) if INTERPRETED else None
    attend_registers[(programs,)](
        call.q,
        call.k.data,
        call.v.data,
        call.out,
        call.lse,
        s,
        shared,
        room=room,
        pitch=pitch,
        SEQ_BLOCK=32,  # a warp's: so nothing is exchanged in shared memory, and the kernel's own may be all of 48 KB
        num_warps=4,
        **_arguments(call, heads, parts),
    )


def launch_dots(call: Call) -> None:
    """By tiles.py: any head size."""
    heads = heads_of_part(call.group)
    parts = call.q.shape[1] // heads
    programs = _programs(call, heads, parts, 1)
    room = min(ROOM, -(-call.num_cells // CUT_LEN) * CUT_LEN)
    s = torch.empty((programs, ROWS, room + CUT_LEN), dtype=torch.float32, device=call.q.device)
    attend_tiles[(programs,)](
        call.q,
        call.k.data,
        call.v.data,
        call.out,
        call.lse,
        s,
        room=room,
        zero=0.0,
        SLICES=power_of_two(call.head_size) // 16,
        V_PAD=max(16, power_of_two(call.v_dim)),
        M=ROWS,
        N=64,
        ALL_KEPT=call.num_cells <= room,
        SEQ_BLOCK=seq_block(call.num_sequences),
        num_warps=8,
        **_arguments(call, heads, parts),
    )
