"""The launch of decode.cu, and the calls whose one-query sequences it serves."""

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
from samebits.kernels.triton.lib.scratch import MAX_COUNTERS, counters

SOURCE = Path(__file__).parent / "decode.cu"
WARPS, PROGRAMS = 8, 2  # that compute in a block; blocks of a multiprocessor
NEAR_CUTS = 8  # of a stretch, whose scores are in shared memory
MAX_HEADS, MAX_READS = 4, 2  # of a part; parts of a KV head, each of which reads it
STATE = 16  # counters of a sequence and part


class _Pointers(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("q", "sinks", "out", "far", "cuts", "fault", "counters"))


class _Numbers(ctypes.Structure):
    _fields_ = (
        *(
            (name, ctypes.c_int)
            for name in ("q_token", "q_head", "window", "most_cuts", "most_count", "far_room", "num_slots", "is_second")
        ),
        ("scale", ctypes.c_float),
    )


def serves(call: Call) -> bool:
    """Whether a call's one-query sequences are launched from here."""
    heads = call.heads_of_part(MAX_HEADS)
    if call.group > MAX_READS * heads:
        return False
    if not can_take(call):
        return False
    states = 1 + call.num_sequences * (call.q.shape[1] // heads)
    return states * STATE <= MAX_COUNTERS


def slots(head_size: int) -> int:
    """Runs of a warp's ring."""
    return 256 // head_size


def scores_of_run(heads: int) -> int:
    """Numbers that a run's scores and their sums take."""
    return (RUN_LEN + 1) * (4 if heads == 3 else heads)


def num_programs(device: torch.device) -> int:
    return PROGRAMS * multiprocessors(device)


def most_stretches(device: torch.device) -> int:
    """Of a sequence and part: their blocks wait for each other, so all must have room at once."""
    return num_programs(device) // 2


def most_cuts(call: Call) -> int:
    """Of a stretch; where sequences are few it is one, so that many blocks share each of them."""
    parts = call.num_sequences * (call.q.shape[1] // call.heads_of_part(MAX_HEADS))
    return NEAR_CUTS if parts > num_programs(call.q.device) // 4 else 1


def slots_of_cuts(call: Call) -> int:
    """Places for the sums of cuts: every sequence's positions have their own range in the table."""
    return call.num_cells // CUT_LEN + call.num_sequences + 1


def far_cuts(call: Call) -> int:
    """Of a stretch that is longer than shared memory has room for; 0 where no sequence can be so long."""
    cuts, most = slots_of_cuts(call), most_stretches(call.q.device)
    return -(-cuts // most) if cuts > most * NEAR_CUTS else 0


def build_of(call: Call) -> CudaBuild:
    """The kernel of a call."""
    table, heads = call.table, call.heads_of_part(MAX_HEADS)
    return CudaBuild(
        SOURCE,
        (
            ("D", call.head_size),
            ("HEADS", heads),
            ("GROUP", call.group),
            ("PARTS", call.q.shape[1] // heads),
            ("PAGE", table["page_size"] if table["TABLE"] else CUT_LEN),
            ("SLOTS", slots(call.head_size)),
            ("NEAR_RUNS", NEAR_CUTS * CUT_LEN // RUN_LEN),
            ("FAR", int(far_cuts(call) > 0)),
            *flags_of(call),
            *arithmetic(),
        ),
        ARCH,
    )


@cache
def _function(build: CudaBuild, shared_bytes: int, device: torch.device) -> Function:
    return Function.on(device, build.code(), "attention_decode", 32 * (WARPS + 4), shared_bytes)


def shared_bytes(head_size: int, heads: int) -> int:
    """Of the rings and the scores."""
    rings = WARPS * slots(head_size) * RUN_LEN * head_size * 2
    return rings + NEAR_CUTS * CUT_LEN // RUN_LEN * scores_of_run(heads) * 4


def attend(call: Call, is_second: bool) -> None:
    """Fills the rows of one-query sequences, and those beyond the last sequence.

    is_second: the launch before is the call's own, for the other sequences. It only reads what this one reads, and it
    lets this one in when what was launched before it has ended: so this one need not wait for it to begin.
    """
    build = build_of(call)
    if is_noting():
        note(build)
        return
    device, heads, table = call.q.device, call.heads_of_part(MAX_HEADS), call.table
    parts, grid = call.q.shape[1] // heads, num_programs(device)
    num_slots = slots_of_cuts(call)
    far_room = far_cuts(call) * CUT_LEN // RUN_LEN * scores_of_run(heads)

    def scratch(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.float32, device=device)

    pointers = (
        *(call.q, call.extras["sinks"], call.out),
        *(scratch(grid, far_room), scratch(parts, num_slots, heads * (call.head_size + 1))),
        *(fault_word(device), counters(device)),
    )
    read = (pointer(table[name]) for name in ("qo_ptr", "last_ptr", "indptr_ptr", "indices_ptr"))
    sizes = call.num_sequences, call.num_tokens, table["num_entries"], table["num_pages"], table["page_size"]
    box = (call.head_size, RUN_LEN, 1, 1)
    _function(build, shared_bytes(call.head_size, heads), device).launch(
        (grid, 1),
        (
            *(tensor_map(view.data.transpose(1, 2), box, is_swapped=False) for view in (call.k, call.v)),
            Batch(*read, *sizes),
            _Pointers(*map(pointer, pointers)),
            _Numbers(
                *call.q.stride()[:2], call.numbers["window"], most_cuts(call), most_stretches(device),
                far_room, num_slots, is_second, call.numbers["scale"],
            ),
        ),
    )  # fmt: skip
