"""Launch of attention_tile: sequences with several queries over 16-bit caches."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from samebits.kernels.triton.attention_args import Call
from samebits.kernels.triton.attention_decode import CUT, heads_of_part
from samebits.kernels.triton.attention_general import power_of_two, seq_block
from samebits.kernels.triton.attention_tile import attend_tiles
from samebits.kernels.triton.chaining import chained
from samebits.kernels.triton.faults import fault_word
from samebits.kernels.triton.registry import UNFUSED


@dataclass(frozen=True)
class Tiles:
    """Sizes of one launch: rows and positions of a tile, positions whose scores are kept."""

    rows: int = 64
    columns: int = 64
    warps: int = 8
    programs: int = 132
    room: int = 4096


TILES = Tiles()


def launch_tiles(call: Call, tiles: Tiles = TILES) -> None:
    """All sequences with more than one query."""
    heads = heads_of_part(call.group)
    parts = call.q.shape[1] // heads
    most = parts * (-(-call.num_tokens // (tiles.rows // heads)) + call.num_sequences)
    programs = min(tiles.programs, most)
    room = min(tiles.room, -(-call.num_cells // CUT) * CUT)
    s = torch.empty((programs, tiles.rows, room + CUT), dtype=torch.float32, device=call.q.device)
    attend_tiles[(programs,)](
        call.q,
        call.k.data,
        call.v.data,
        call.out,
        call.lse,
        s,
        **call.table,
        **{name: value for name, value in call.numbers.items() if name != "MASK"},
        slopes_ptr=call.extras["alibi_slopes"],
        sinks_ptr=call.extras["sinks"],
        fault_ptr=fault_word(call.q.device),
        num_tokens=call.num_tokens,
        room=room,
        q_row=call.q.stride(0),
        q_head=call.q.stride(1),
        **dict(zip(("k_page", "k_slot", "k_head"), call.k.strides, strict=True)),
        **dict(zip(("v_page", "v_slot", "v_head"), call.v.strides, strict=True)),
        zero=0.0,
        LSE=call.lse is not None,
        K_FORMAT=call.k.format,
        V_FORMAT=call.v.format,
        GROUP=call.group,
        HEADS=heads,
        NUM_PARTS=parts,
        D=call.head_size,
        SLICES=power_of_two(call.head_size) // 16,
        V_DIM=call.v_dim,
        V_PAD=max(16, power_of_two(call.v_dim)),
        M=tiles.rows,
        N=tiles.columns,
        ALL_KEPT=call.num_cells <= room,
        SEQ_BLOCK=seq_block(call.num_sequences),
        num_warps=tiles.warps,
        **chained(call.q.device),
        **UNFUSED,
    )
