"""The native `sample`: rows that overflow are refused in the reference's words, masses of many equal tokens counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from samebits.backends.cpu import CpuBackend
from samebits.core.errors import BadInput, Unavailable
from samebits.core.tiers import Tier
from samebits.kernels.cpp import native
from samebits.ops import OPS, bind, evaluate, make_inputs
from samebits.verify.harness import execute
from samebits.verify.select import find_case

try:
    native()
except Unavailable as error:
    pytest.skip(str(error), allow_module_level=True)

OP = OPS["sample"]
NUM_ROWS, NUM_TOKENS = 3, 40


def drawn(**changes: Any) -> dict[str, Any]:
    """Inputs of `sample` with one setting for all rows."""
    inputs = make_inputs(OP, find_case(OP, f"B={NUM_ROWS},V={NUM_TOKENS}"))
    for name, value in changes.items():
        inputs[name][:] = value
    return inputs


def assert_refused(inputs: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as found:
        execute(CpuBackend(), replace(OP, check=None), inputs, Tier.PORTABLE)
    with pytest.raises(BadInput) as wanted:
        bind(OP, **inputs)
    assert str(found.value) == str(wanted.value)


@pytest.mark.parametrize("settings", [{}, {"top_p": 0.9}, {"top_k": 5, "min_p": 0.1}])
def test_a_largest_logit_that_overflows_is_refused(settings: dict[str, float]) -> None:
    inputs = drawn(temperature=1e-4, **settings)
    inputs["logits"][1, 7] = 1e35
    assert_refused(inputs)
    inputs["logits"][1] = -1e35
    assert_refused(inputs)
    inputs["logits"][1, 7] = 1
    assert execute(CpuBackend(), OP, inputs, Tier.PORTABLE).results[0][1] == 7


def test_a_bias_that_overflows_is_refused_at_temperature_0_too() -> None:
    inputs = drawn(temperature=0.0)
    inputs["bias"] = np.zeros((NUM_ROWS, NUM_TOKENS), np.float32)
    inputs["logits"][1, 7] = inputs["bias"][1, 7] = 3e38
    assert_refused(inputs)


def test_top_p_of_more_equals_than_64_bits_count() -> None:
    inputs = make_inputs(OP, find_case(OP, "many-equals"))
    found = execute(CpuBackend(), OP, inputs, Tier.PORTABLE).results
    assert np.array_equal(found[0], evaluate(bind(OP, **inputs))[0])
