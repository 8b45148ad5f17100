"""kernels/cuda/attention/few.py without a GPU: what it serves, that it fits, and that NVRTC compiles it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from without_memory import FAST_FORMS, an_h200, compiler, fast_call, fast_call_of_case  # noqa: F401 fixtures

from samebits.kernels.ahead import noting
from samebits.kernels.cuda.attention import few
from samebits.kernels.cuda.attention.boxes import HEAD_SIZES
from samebits.kernels.cuda.products.shapes import MOST_SHARED_BYTES
from samebits.kernels.triton.attention.fast.arguments import FEW_ROWS
from samebits.kernels.triton.lib.devices import describing, parsed_facts
from samebits.ops import OPS
from samebits.ops.cases import make_inputs

pytestmark = pytest.mark.usefixtures("an_h200")
H200 = 132  # multiprocessors


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
    """With tiles of up to 8 rows, of up to 16, of more than one, and with several pieces for a block."""
    op = OPS["paged_attention"]
    cases = [case for case in op.cases if case.id.startswith("decode-") and not case.full]
    calls = {case.id: fast_call_of_case(case.id) for case in cases}
    assert all(few.serves(call) for call in calls.values())
    rows, most_items = set(), 0
    for case in cases:
        counts = np.diff(make_inputs(op, case)["qo_indptr"])
        rows |= set((counts * calls[case.id].constants["GROUP"]).tolist())
        most_items = max(most_items, int((counts > 0).sum()) * calls[case.id].num_kv_heads)
    widest = [most for most in (8, 16, FEW_ROWS) if any(most // 2 < n <= most for n in rows)]
    assert widest == [8, 16, FEW_ROWS]
    assert most_items > 4 * H200  # places of pieces in a block are two: each is used again


def test_a_block_fits_a_multiprocessor() -> None:
    for size in HEAD_SIZES:
        queries = 2 * few.ROWS * size * 4
        assert few.shared_bytes(size) + queries + 2048 <= MOST_SHARED_BYTES  # and the barriers


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("given", FAST_FORMS)
def test_a_form_is_noted_and_compiles(given: dict[str, Any]) -> None:
    with noting() as builds:
        few.attend(fast_call(num_queries=1, **given), 64, 1, 2)
    (build,) = builds.values()
    build.build()
    assert build.is_built()
