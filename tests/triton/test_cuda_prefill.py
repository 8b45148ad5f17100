"""kernels/cuda/attention/prefill.py without a GPU: what it serves, in which form, and that NVRTC compiles it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from without_memory import FAST_FORMS, an_h200, compiler, fast_call, fast_call_of_case  # noqa: F401 fixtures

from samebits.kernels.ahead import noting
from samebits.kernels.cuda.attention import prefill
from samebits.kernels.cuda.attention.boxes import HEAD_SIZES
from samebits.kernels.cuda.products.shapes import MOST_SHARED_BYTES
from samebits.kernels.triton.lib.devices import describing, parsed_facts
from samebits.ops import OPS

pytestmark = pytest.mark.usefixtures("an_h200")


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("given", "is_served"),
    [
        ({}, True),
        ({"size": 64, "dtype": torch.float16}, True),
        ({"q_dtype": torch.bfloat16}, True),
        ({"page": 256}, True),
        ({"has_table": False, "page": 100}, True),
        ({"size": 80}, False),
        ({"size": 256}, False),
        ({"page": 4}, False),
        ({"page": 48}, False),
        ({"logits_soft_cap": 30.0}, False),
        ({"q_dtype": torch.float16}, False),
    ],
)
def test_what_copies_and_instructions_can_take_is_served(given: dict[str, Any], is_served: bool) -> None:
    assert prefill.serves(fast_call(**given)) is is_served


def test_other_gpus_are_not_served() -> None:
    with describing(parsed_facts("sm_100/148")):
        assert not prefill.serves(fast_call())


def test_short_prompts_have_a_form_of_their_own() -> None:
    assert prefill.form_of(fast_call(num_sequences=16, num_pages=16 * 32)) is prefill.SHORT  # 512 positions each
    assert prefill.form_of(fast_call(num_sequences=1, num_pages=512)) is prefill.LONG


@pytest.mark.usefixtures("compiler")
def test_quick_cases_of_verify_reach_both_forms() -> None:
    names = [case.id for case in OPS["paged_attention"].cases if case.id.startswith("prompt-") and not case.full]
    calls = {name: fast_call_of_case(name) for name in names}
    few = {name for name, call in calls.items() if not call.has_many}
    assert few == {"prompt-far", "prompt-drawn"}  # the portable tier's: few.cu takes them here
    calls = {name: call for name, call in calls.items() if name not in few}
    assert all(prefill.serves(call) for call in calls.values())
    assert {name: prefill.form_of(call) is prefill.LONG for name, call in calls.items()} == {
        "prompt-bf16": False,
        "prompt-window": False,
        "prompt-sinks": False,
        "prompt-long": True,
        "prompt-contiguous": True,
        "prompt-behind": False,
    }


def test_forms_fit_a_multiprocessor() -> None:
    for form in (prefill.SHORT, prefill.LONG):
        for size in HEAD_SIZES:
            assert prefill.shared_bytes(form, size) + 2048 <= MOST_SHARED_BYTES  # and the barriers


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("given", FAST_FORMS)
def test_both_forms_are_noted_and_compile(given: dict[str, Any]) -> None:
    with noting() as builds:
        prefill.attend(fast_call(**given), 64, 1)
    assert len(builds) == 2
    for build in builds.values():
        build.build()
        assert build.is_built()
