"""The launch of prompts.cu, and the calls whose sequences with several queries it serves."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch

from samebits.kernels.ahead import is_noting, note
from samebits.kernels.cuda.attention.batch import Batch
from samebits.kernels.cuda.attention.portable import arithmetic, can_take, flags_of
from samebits.kernels.cuda.hopper import ARCH
from samebits.kernels.cuda.modules import Function, pointer, tensor_map
from samebits.kernels.cuda.nvrtc import CudaBuild
from samebits.kernels.triton.attention.call import CUT_LEN, RUN_LEN, Call
from samebits.kernels.triton.lib.devices import multiprocessors
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.scratch import counters

SOURCE = Path(__file__).parent / "prompts.cu"
THREADS = 384
TILE_ROWS, POSITIONS = 128, 64  # of a tile; of a block, whose scores are computed at a time
ROOM = 4096  # positions whose scores are kept, of a tile


class _Pointers(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("q", "sinks", "out", "scores", "sums", "fault", "counters"))


class _Numbers(ctypes.Structure):
    _fields_ = (*((name, ctypes.c_int) for name in ("q_token", "q_head", "window", "room")), ("scale", ctypes.c_float))


def serves(call: Call) -> bool:
    """Whether a call's sequences with several queries are launched from here.

    Not where tokens are no more than sequences, as in a step of decodes: there is nothing to do then as a rule, and
    Triton's kernel lets the launch for those in sooner.
    """
    return call.num_tokens > call.num_sequences and can_take(call)


def shared_bytes(head_size: int) -> int:
    """As prompt.cuh places it: blocks as they come, as float32, scores and queries."""
    narrow, scores = POSITIONS * head_size * 2, TILE_ROWS * POSITIONS * 4
    wide, queries = (4 * (head_size // 4 * rows * 4 + gap) for rows, gap in ((POSITIONS, 64), (TILE_ROWS, 32)))
    return 2 * (narrow + wide + scores) + queries


def room(call: Call) -> int:
    """Positions whose scores are kept: no sequence has more than the table has room for."""
    return min(ROOM, -(-call.num_cells // CUT_LEN) * CUT_LEN)


def build_of(call: Call) -> CudaBuild:
    """The kernel of a call."""
    defines = (
        ("D", call.head_size),
        ("HEADS", call.q.shape[1]),
        ("GROUP", call.group),
        ("PAGE", call.table["page_size"] if call.table["TABLE"] else CUT_LEN),
        *flags_of(call),
        *arithmetic(),
    )
    return CudaBuild(SOURCE, defines, ARCH)


@cache
def _function(build: CudaBuild, shared_bytes: int, device: torch.device) -> Function:
    return Function.on(device, build.code(), "attention_prompts", THREADS, shared_bytes)


def attend(call: Call) -> None:
    """Fills the rows of sequences with more than one query."""
    build = build_of(call)
    if is_noting():
        note(build)
        return
    device, table, kept = call.q.device, call.table, room(call)
    tiles = -(-call.num_tokens * call.group // TILE_ROWS) + call.num_sequences
    grid = min(tiles * call.num_kv_heads, multiprocessors(device))

    def scratch(count: int) -> torch.Tensor:
        return torch.empty((grid, count), dtype=torch.float32, device=device)

    saved = TILE_ROWS * call.head_size if call.num_cells > kept else 0  # sums of a tile between parts of its positions
    pointers = (
        *(call.q, call.extras["sinks"], call.out, scratch(kept * TILE_ROWS), scratch(saved)),
        *(fault_word(device), counters(device)),
    )
    read = (pointer(table[name]) for name in ("qo_ptr", "last_ptr", "indptr_ptr", "indices_ptr"))
    sizes = call.num_sequences, call.num_tokens, table["num_entries"], table["num_pages"], table["page_size"]
    box = (64, RUN_LEN, 1, 1)
    _function(build, shared_bytes(call.head_size), device).launch(
        (grid, 1),
        (
            *(tensor_map(view.data.transpose(1, 2), box, is_swapped=True) for view in (call.k, call.v)),
            Batch(*read, *sizes, call.group),
            _Pointers(*map(pointer, pointers)),
            _Numbers(*call.q.stride()[:2], call.numbers["window"], kept, call.numbers["scale"]),
        ),
    )
