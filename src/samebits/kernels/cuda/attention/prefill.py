"""The launch of prefill.cu, and the calls that it serves."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
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

SOURCE = Path(__file__).parent / "prefill.cu"
THREADS, TILE_ROWS = 384, 128
PATTERN_ROWS = 8  # what a page's positions are a multiple of: copies keep to a pattern of so many rows


@dataclass(frozen=True)
class Form:
    """How a tile walks its positions: so many at a time, in stages; ahead: the next tile's queries come early."""

    positions: int
    stages: int
    ahead: bool


# On an H200, 16 prompts of 512 tokens / one of 8,192, bf16: 266 / 460 TFLOP/s and 227 / 550.
SHORT, LONG = Form(64, 4, True), Form(128, 2, False)
SHORT_POSITIONS = 768  # of a sequence, on average


class _Pointers(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("q", "sinks", "out", "lse", "fault", "counters"))


class _Numbers(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("fault_code", "q_token", "q_head", "window")),
        ("scale", ctypes.c_float),
    )


def serves(call: Arguments) -> bool:
    """Whether a call's prompts are launched from here."""
    page = call.constants["PAGE"]
    return not (call.constants["HAS_TABLE"] and (page % PATTERN_ROWS or page & (page - 1))) and can_copy(call)


def form_of(call: Arguments) -> Form:
    """The form for a call; what its table has room for is taken for the positions."""
    return SHORT if call.num_positions <= SHORT_POSITIONS * call.num_sequences else LONG


def _page(call: Arguments, form: Form) -> int:
    """Positions of a page, or of a copy where a page is a whole sequence."""
    return call.constants["PAGE"] if call.constants["HAS_TABLE"] else form.positions


def build_of(call: Arguments, form: Form) -> CudaBuild:
    """The kernel of a call."""
    flags = ("CAUSAL", "WINDOW", "HAS_TABLE", "HAS_SINKS", "HAS_LSE")
    defines = (
        *((name, call.constants[name]) for name in ("D", "HEADS", "GROUP")),
        ("PAGE", _page(call, form)),
        ("BN", form.positions),
        ("STAGES", form.stages),
        ("AHEAD", int(form.ahead)),
        ("BF16", int(call.k.dtype == torch.bfloat16)),
        ("WIDE_Q", int(call.q.dtype == torch.float32)),
        *((name, int(call.constants[name])) for name in flags),
    )
    return CudaBuild(SOURCE, defines, ARCH)


@cache
def _function(build: CudaBuild, shared_bytes: int, device: torch.device) -> Function:
    return Function.on(device, build.code(), "attention_prefill", THREADS, shared_bytes)


def shared_bytes(form: Form, head_size: int) -> int:
    """Of the stages of K and V."""
    return 2 * form.stages * form.positions * head_size * 2


def attend(call: Arguments, most_rows: int, fault_code: int) -> None:
    """Fills the rows of sequences of more than most_rows; fault_code: for a query that the cache's type cannot hold."""
    if is_noting():
        for form in (SHORT, LONG):  # which of them, the length of a prompt will say
            note(build_of(call, form))
        return
    form, device = form_of(call), call.q.device
    qo_indptr, kv_last, kv_indptr, kv_indices, sinks, out, lse = call.others
    read = [pointer(tensor) for tensor in (qo_indptr, kv_last, kv_indptr, kv_indices)]
    others = [pointer(tensor) for tensor in (call.q, sinks, out, lse, fault_word(device), counters(device))]
    scale, _, window = call.logits
    box = (64, min(_page(call, form), form.positions), 1, 1)
    _function(build_of(call, form), shared_bytes(form, call.constants["D"]), device).launch(
        (min(call.prefill_programs(TILE_ROWS), multiprocessors(device)), 1),
        (
            *(tensor_map(cache.transpose(1, 2), box, is_swapped=True) for cache in (call.k, call.v)),
            Batch(*read, *call.sizes, call.constants["PAGE"], most_rows),
            _Pointers(*others),
            _Numbers(fault_code, call.q.stride(0), call.q.stride(1), int(window), scale),
        ),
    )
