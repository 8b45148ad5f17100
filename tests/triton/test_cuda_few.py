"""kernels/cuda/attention/few.py without a GPU: what it serves, that it fits, and that NVRTC compiles it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from without_memory import an_h200, compiler, fast_call, fast_call_of_case  # noqa: F401 fixtures

from samebits.kernels.ahead import noting
from samebits.kernels.cuda.attention import few
from samebits.kernels.cuda.attention.prefill import HEAD_SIZES
from samebits.kernels.cuda.products.shapes import MOST_SHARED_BYTES
from samebits.kernels.triton.lib.devices import describing, parsed_facts
from samebits.ops import OPS

pytestmark = pytest.mark.usefixtures("an_h200")


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("given", "is_served"),
    [
        ({}, True),
        ({"size": 64, "dtype": torch.float16, "heads": (9, 3)}, True),
        ({"q_dtype": torch.bfloat16, "return_lse": True, "has_sinks": True, "window_left": 100}, True),
        ({"page": 48}, True),
        ({"has_table": False, "page": 100}, True),
        ({"heads": (64, 4)}, True),
        ({"heads": (32, 1)}, False),
        ({"size": 80}, False),
        ({"page": 8}, False),
        ({"logits_soft_cap": 30.0}, False),
        ({"q_dtype": torch.float16}, False),
    ],
)
def test_what_copies_and_instructions_can_take_is_served(given: dict[str, Any], is_served: bool) -> None:
    assert few.serves(fast_call(num_queries=1, **given)) is is_served


def test_other_gpus_are_not_served() -> None:
    with describing(parsed_facts("sm_100/148")):
        assert not few.serves(fast_call(num_queries=1))


@pytest.mark.usefixtures("compiler")
def test_quick_cases_of_verify_reach_the_kernel() -> None:
    names = [case.id for case in OPS["paged_attention"].cases if case.id.startswith("decode-") and not case.full]
    assert len(names) == 4
    assert all(few.serves(fast_call_of_case(name)) for name in names)


def test_a_block_fits_a_multiprocessor() -> None:
    for size in HEAD_SIZES:
        queries = 2 * few.ROWS * size * 4
        assert few.shared_bytes(size) + queries + 2048 <= MOST_SHARED_BYTES  # and the barriers


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"size": 64, "dtype": torch.float16, "heads": (9, 3), "window_left": 100, "return_lse": True},
        {"q_dtype": torch.bfloat16, "has_sinks": True, "causal": False, "page": 256},
        {"has_table": False, "page": 100},
    ],
)
def test_a_form_is_noted_and_compiles(given: dict[str, Any]) -> None:
    with noting() as builds:
        few.attend(fast_call(num_queries=1, **given), 64, 1, 2)
    (build,) = builds.values()
    build.build()
    assert build.is_built()
