"""The launch of few.cu, and the calls whose sequences with few queries it serves."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch

from samebits.kernels.ahead import is_noting, note
from samebits.kernels.cuda.attention.batch import Batch
from samebits.kernels.cuda.attention.boxes import can_copy
from samebits.kernels.cuda.hopper import ARCH
from samebits.kernels.cuda.modules import Function, pointer, tensor_map
from samebits.kernels.cuda.nvrtc import CudaBuild
from samebits.kernels.triton.attention.fast.arguments import Arguments
from samebits.kernels.triton.lib.devices import multiprocessors
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.scratch import counters

SOURCE = Path(__file__).parent / "few.cu"
WARPS, OTHER_WARPS = 8, 3  # that compute, and the others
RUN, ROWS = 16, 16  # positions of a run, rows of a tile
RING_BYTES = 8192  # of a warp's keys, and of its values
SLOTS_PER_BLOCK = 8  # of pieces that are joined: pieces.cuh makes no more


class _Pointers(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in ("q", "sinks", "out", "lse", "part_sums", "part_walked", "fault", "counters")
    )


class _Numbers(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("bad_query", "bad_page", "q_token", "q_head", "window")),
        ("scale", ctypes.c_float),
    )


def serves(call: Arguments) -> bool:
    """Whether a call's sequences with few queries are launched from here."""
    page, has_table = call.constants["PAGE"], call.constants["HAS_TABLE"]
    return call.constants["GROUP"] <= ROWS and not (has_table and page % RUN) and can_copy(call)


def slots(head_size: int) -> int:
    """Runs of a warp's ring of keys, and of that of values."""
    return RING_BYTES // (RUN * head_size * 2)


def shared_bytes(head_size: int) -> int:
    """Of the rings, and of what warps leave: sums, a maximum and a total of every row."""
    return WARPS * (2 * RING_BYTES + ROWS * 4 * (head_size + 4 + 2))


def build_of(call: Arguments) -> CudaBuild:
    """The kernel of a call."""
    flags = ("CAUSAL", "WINDOW", "HAS_TABLE", "HAS_SINKS", "HAS_LSE")
    defines = (
        *((name, call.constants[name]) for name in ("D", "HEADS", "GROUP")),
        ("PAGE", call.constants["PAGE"] if call.constants["HAS_TABLE"] else RUN),
        ("SLOTS", slots(call.constants["D"])),
        ("BF16", int(call.k.dtype == torch.bfloat16)),
        ("WIDE_Q", int(call.q.dtype == torch.float32)),
        *((name, int(call.constants[name])) for name in flags),
    )
    return CudaBuild(SOURCE, defines, ARCH)


@cache
def _function(build: CudaBuild, head_size: int, device: torch.device) -> Function:
    return Function.on(device, build.code(), "attention_few", 32 * (WARPS + OTHER_WARPS), shared_bytes(head_size))


def attend(call: Arguments, most_rows: int, bad_query: int, bad_page: int) -> None:
    """Fills the rows of sequences of at most most_rows, and those beyond the last sequence; checks the whole table.

    bad_query, bad_page: numbers of faults: a query that the cache's type cannot hold, a page that is not there.
    """
    build = build_of(call)
    if is_noting():
        note(build)
        return
    device, head_size = call.q.device, call.constants["D"]
    grid = multiprocessors(device)
    qo_indptr, kv_last, kv_indptr, kv_indices, sinks, out, lse = call.others

    def parts(*shape: int) -> torch.Tensor:
        return torch.empty((grid * SLOTS_PER_BLOCK, ROWS, *shape), dtype=torch.float32, device=device)

    read = [pointer(tensor) for tensor in (qo_indptr, kv_last, kv_indptr, kv_indices)]
    others = (call.q, sinks, out, lse, parts(head_size), parts(2), fault_word(device), counters(device))
    scale, _, window = call.logits
    _function(build, head_size, device).launch(
        (grid, 1),
        (
            *(tensor_map(cache.transpose(1, 2), (64, RUN, 1, 1), is_swapped=True) for cache in (call.k, call.v)),
            Batch(*read, *call.sizes, call.constants["PAGE"], most_rows),
            _Pointers(*map(pointer, others)),
            _Numbers(bad_query, bad_page, call.q.stride(0), call.q.stride(1), int(window), scale),
        ),
    )
