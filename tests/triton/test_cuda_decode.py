"""kernels/cuda/attention/decode.py without a GPU: what it serves, how it shares it out, and that NVRTC compiles it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from without_memory import an_h200, arguments_of_case, compiler, portable_call  # noqa: F401 fixtures

from samebits.kernels.ahead import noting
from samebits.kernels.cuda.attention import decode
from samebits.kernels.cuda.attention.boxes import HEAD_SIZES
from samebits.kernels.cuda.products.shapes import MOST_SHARED_BYTES
from samebits.kernels.triton.attention.call import make_call
from samebits.kernels.triton.attention.portable.op import paged_attention
from samebits.kernels.triton.lib.devices import MEMORYLESS, describing, parsed_facts
from samebits.ops import OPS

pytestmark = pytest.mark.usefixtures("an_h200")
STATIC_BYTES = 6 << 10  # of shared memory: queries, barriers and what every block has


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("given", "is_served"),
    [
        ({}, True),
        ({"size": 64, "dtype": torch.bfloat16, "q_dtype": torch.bfloat16, "heads": (9, 3)}, True),
        ({"window_left": 100, "extras": ("sinks",)}, True),
        ({"has_table": False, "page": 100}, True),
        ({"heads": (64, 8)}, True),
        ({"heads": (56, 8)}, False),
        ({"heads": (128, 8)}, False),
        ({"size": 96}, False),
        ({"page": 8}, False),
        ({"v_dtype": torch.bfloat16}, False),
        ({"q_dtype": torch.bfloat16}, False),
        ({"logits_soft_cap": 30.0}, False),
        ({"extras": ("alibi_slopes",)}, False),
        ({"return_lse": True}, False),
    ],
)
def test_what_the_kernel_can_honour_is_served(given: dict[str, Any], is_served: bool) -> None:
    assert decode.serves(portable_call(**given)) is is_served


def test_other_gpus_are_not_served() -> None:
    with describing(parsed_facts("sm_100/148")):
        assert not decode.serves(portable_call())


def test_scores_leave_shared_memory_only_where_a_sequence_can_be_that_long() -> None:
    near = decode.most_stretches(MEMORYLESS) * decode.NEAR_CUTS * 256 // 16  # pages
    assert decode.far_cuts(portable_call(num_pages=near // 2)) == 0
    assert decode.far_cuts(portable_call(num_pages=2 * near)) > decode.NEAR_CUTS


def test_two_blocks_fit_a_multiprocessor() -> None:
    for size in HEAD_SIZES:
        bytes_of_two = 2 * (decode.shared_bytes(size, decode.MAX_HEADS) + STATIC_BYTES)
        assert bytes_of_two <= MOST_SHARED_BYTES


@pytest.mark.usefixtures("compiler")
def test_quick_cases_of_verify_reach_the_kernel_with_few_sequences_and_with_many() -> None:
    names = [case.id for case in OPS["paged_attention"].cases if case.id.startswith("decode-") and not case.full]
    calls = {name: make_call(**arguments_of_case(paged_attention, name)) for name in names}
    assert [name for name, call in calls.items() if not decode.serves(call)] == [
        "decode-rows"
    ]  # log-sum-exps are asked for
    assert {name: decode.most_cuts(call) for name, call in calls.items()} == {
        "decode-cuts": 1,
        "decode-many": decode.NEAR_CUTS,
        "decode-window": 1,
        "decode-contiguous": 1,
        "decode-rows": 1,
        "decode-drawn": decode.NEAR_CUTS,
    }


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"size": 64, "dtype": torch.bfloat16, "q_dtype": torch.bfloat16, "heads": (9, 3), "num_pages": 1 << 20},
        {"heads": (16, 8), "window_left": 100, "extras": ("sinks",), "causal": False, "page": 64},
        {"size": 64, "heads": (8, 8), "has_table": False, "page": 100},
    ],
)
def test_a_form_is_noted_and_compiles(given: dict[str, Any]) -> None:
    with noting() as builds:
        decode.attend(portable_call(**given), is_second=True)
    (build,) = builds.values()
    build.build()
    assert build.is_built()
