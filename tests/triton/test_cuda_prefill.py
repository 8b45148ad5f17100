"""kernels/cuda/attention/prefill.py without a GPU: what it serves, in which form, and that NVRTC compiles it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from without_memory import an_h200, arguments_of_case, compiler  # noqa: F401 fixtures

from samebits.kernels.ahead import noting
from samebits.kernels.cuda.attention import prefill
from samebits.kernels.cuda.products.shapes import MOST_SHARED_BYTES
from samebits.kernels.triton.attention.fast.arguments import Arguments, arguments_of
from samebits.kernels.triton.attention.fast.op import paged_attention_fast
from samebits.kernels.triton.lib.devices import MEMORYLESS, describing, parsed_facts
from samebits.ops import OPS

pytestmark = pytest.mark.usefixtures("an_h200")


def call(
    *,
    num_sequences: int = 2,
    num_pages: int = 64,
    heads: tuple[int, int] = (32, 8),
    size: int = 128,
    page: int = 16,
    has_table: bool = True,
    q_dtype: torch.dtype = torch.float32,
    dtype: torch.dtype = torch.bfloat16,
    **given: Any,
) -> Arguments:
    """Arguments of 256 queries of a sequence, without memory."""
    options = {"causal": True, "sm_scale": None, "window_left": -1, "logits_soft_cap": 0.0, "return_lse": False} | given
    integers = torch.empty(num_sequences + 1, dtype=torch.int32, device=MEMORYLESS)
    cache = torch.empty(num_pages, page, heads[1], size, dtype=dtype, device=MEMORYLESS)
    return arguments_of(
        torch.empty(num_sequences * 256, heads[0], size, dtype=q_dtype, device=MEMORYLESS),
        cache,
        integers,
        integers[1:],
        v_cache=cache,
        kv_indptr=integers if has_table else None,
        kv_indices=torch.empty(num_pages, dtype=torch.int32, device=MEMORYLESS) if has_table else None,
        sinks=torch.empty(heads[0], device=MEMORYLESS) if options.pop("has_sinks", False) else None,
        layout="NHD",
        **options,
    )


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
    assert prefill.serves(call(**given)) is is_served


def test_other_gpus_are_not_served() -> None:
    with describing(parsed_facts("sm_100/148")):
        assert not prefill.serves(call())


def test_short_prompts_have_a_form_of_their_own() -> None:
    assert prefill.form_of(call(num_sequences=16, num_pages=16 * 32)) is prefill.SHORT  # 512 positions each
    assert prefill.form_of(call(num_sequences=1, num_pages=512)) is prefill.LONG


def of_case(name: str) -> Arguments:
    """A named case, as the fast tier takes it."""
    given = arguments_of_case(paged_attention_fast, name)
    return arguments_of(**{key: value for key, value in given.items() if key not in ("alibi_slopes", "custom_mask")})


@pytest.mark.usefixtures("compiler")
def test_quick_cases_of_verify_reach_both_forms() -> None:
    names = [case.id for case in OPS["paged_attention"].cases if case.id.startswith("prompt-") and not case.full]
    calls = {name: of_case(name) for name in names}
    assert all(call.has_many and prefill.serves(call) for call in calls.values())
    assert {name: prefill.form_of(call) is prefill.LONG for name, call in calls.items()} == {
        "prompt-bf16": False,
        "prompt-window": False,
        "prompt-sinks": False,
        "prompt-long": True,
        "prompt-contiguous": True,
    }


def test_forms_fit_a_multiprocessor() -> None:
    for form in (prefill.SHORT, prefill.LONG):
        for size in prefill.HEAD_SIZES:
            assert prefill.shared_bytes(form, size) + 2048 <= MOST_SHARED_BYTES  # and the barriers


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
def test_both_forms_are_noted_and_compile(given: dict[str, Any]) -> None:
    with noting() as builds:
        prefill.attend(call(**given), 64, 1)
    assert len(builds) == 2
    for build in builds.values():
        build.build()
        assert build.is_built()
