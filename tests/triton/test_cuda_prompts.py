"""kernels/cuda/attention/prompts.py without a GPU: what it serves, that it fits, and that NVRTC compiles it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from without_memory import an_h200, arguments_of_case, compiler, portable_call  # noqa: F401 fixtures

from samebits.kernels.ahead import noting
from samebits.kernels.cuda.attention import prompts
from samebits.kernels.cuda.attention.boxes import HEAD_SIZES, has_int_strides
from samebits.kernels.cuda.products.shapes import MOST_SHARED_BYTES
from samebits.kernels.triton.attention.call import make_call
from samebits.kernels.triton.attention.portable.op import paged_attention
from samebits.kernels.triton.lib.devices import describing, parsed_facts
from samebits.ops import OPS
from samebits.ops.cases import make_inputs

pytestmark = pytest.mark.usefixtures("an_h200")
H200 = 132  # multiprocessors
STATIC_BYTES = 1 << 10  # of shared memory: numbers of rows and barriers


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("given", "is_served"),
    [
        ({}, True),
        ({"size": 64, "dtype": torch.bfloat16, "q_dtype": torch.bfloat16, "heads": (9, 3)}, True),
        ({"window_left": 100, "extras": ("sinks",)}, True),
        ({"has_table": False, "page": 100}, True),
        ({"page": 48}, True),
        ({"heads": (56, 8)}, True),
        ({"heads": (128, 8)}, True),
        ({"size": 96}, False),
        ({"page": 8}, False),
        ({"dtype": torch.float32}, False),
        ({"v_dtype": torch.bfloat16}, False),
        ({"q_dtype": torch.bfloat16}, False),
        ({"logits_soft_cap": 30.0}, False),
        ({"extras": ("alibi_slopes",)}, False),
        ({"return_lse": True}, False),
    ],
)
def test_what_the_kernel_can_honour_is_served(given: dict[str, Any], is_served: bool) -> None:
    assert prompts.serves(portable_call(num_queries=20, **given)) is is_served


@pytest.mark.parametrize(("stride", "fits"), [(2**31 - 1, True), (2**31, False)])
def test_queries_whose_heads_lie_further_apart_than_an_int_are_not_served(stride: int, fits: bool) -> None:
    assert has_int_strides(torch.empty_strided((1, 2, 64), (64, stride, 1), device="meta")) is fits


@pytest.mark.usefixtures("compiler")
def test_a_step_of_decodes_is_not_served() -> None:
    assert not prompts.serves(portable_call(num_queries=1))
    assert prompts.serves(portable_call(num_queries=2))


def test_other_gpus_are_not_served() -> None:
    with describing(parsed_facts("sm_100/148")):
        assert not prompts.serves(portable_call(num_queries=20))


def test_scores_have_room_for_whole_cuts_and_not_for_any_length() -> None:
    assert prompts.room(portable_call(num_queries=20, num_pages=17)) == 512
    assert prompts.room(portable_call(num_queries=20, num_pages=1 << 20)) == prompts.ROOM


def test_a_block_fits_a_multiprocessor() -> None:
    for size in HEAD_SIZES:
        assert prompts.shared_bytes(size) + STATIC_BYTES <= MOST_SHARED_BYTES


@pytest.mark.usefixtures("compiler")
def test_quick_cases_of_verify_reach_every_part_of_the_kernel() -> None:
    """Several tiles, more blocks of positions than places, more positions than room, more tiles than programs."""
    op = OPS["paged_attention"]
    reached = set()
    for case in (case for case in op.cases if case.id.startswith("prompt-") and not case.full):
        call = make_call(**arguments_of_case(paged_attention, case.id))
        if not prompts.serves(call):
            continue
        inputs = make_inputs(op, case)
        rows = int(np.diff(inputs["qo_indptr"]).max()) * call.group
        positions = max(case.extra["lengths"])
        tiles = call.num_sequences * call.num_kv_heads
        flags = {name: call.numbers[name] for name in ("WINDOW", "SINKS")}
        reached |= {f"heads of {call.head_size}", call.k.format, *(name for name, has in flags.items() if has)}
        reached |= {"tiles"} if rows > prompts.TILE_ROWS else set()
        reached |= {"places"} if positions > 2 * 4 * prompts.POSITIONS else set()
        reached |= {"segments"} if positions > prompts.ROOM else set()
        reached |= {"drawn"} if tiles > H200 else set()
        reached |= {"16-bit queries"} if call.q.dtype != torch.float32 else set()
        reached |= set() if call.table["TABLE"] else {"contiguous"}
        reached |= set() if call.numbers["CAUSAL"] else {"not causal"}
    assert reached == {
        *("heads of 64", "heads of 128", "f16", "bf16", "WINDOW", "SINKS", "tiles", "places", "segments", "drawn"),
        *("16-bit queries", "contiguous", "not causal"),
    }


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"size": 64, "dtype": torch.bfloat16, "q_dtype": torch.bfloat16, "heads": (9, 3)},
        {"heads": (56, 8), "window_left": 100, "extras": ("sinks",), "causal": False, "page": 48},
        {"has_table": False, "page": 100},
    ],
)
def test_a_form_is_noted_and_compiles(given: dict[str, Any]) -> None:
    with noting() as builds:
        prompts.attend(portable_call(num_queries=20, **given))
    (build,) = builds.values()
    build.build()
    assert build.is_built()
