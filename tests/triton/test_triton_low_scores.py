"""Scores that overflow to -Inf, which bfloat16 operands can make: below all others, in every tier."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.backends.discovery import get
from samebits.core.tiers import Tier
from samebits.ops import OPS, bind, evaluate, make_inputs
from samebits.ops.kv_cases import attention_case
from samebits.verify.harness import execute

OP = OPS["paged_attention"]
PAGE, LENGTH, LOW = 16, 300, 130  # of a prompt's positions the first LOW, more than a block, have the lowest score
LARGEST = 9e18  # nearly the largest operand: products of two are 2^126, of which a head adds many


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("tier", list(Tier), ids=lambda tier: tier.name.lower())
def test_positions_of_the_lowest_score_have_no_weight(tier: Tier, causal: bool) -> None:
    attrs = {"return_lse": True, "causal": causal}
    cache = {"k": "bf16", "v": "bf16", "heads": 1, "head": 64}
    case = attention_case("low", **cache, lengths=(LENGTH,), queries=(40,), attrs=attrs)
    inputs = make_inputs(OP, case)
    inputs["q"][:] = LARGEST
    for position in range(LENGTH):
        page = inputs["kv_indices"][position // PAGE]
        inputs["k_cache"][page, position % PAGE] = -LARGEST if position < LOW else 0.0
    with np.errstate(all="ignore"):
        want, lse = evaluate(bind(OP, **inputs))
        outcome = execute(get("cuda").backend, OP, inputs, tier)
    assert np.abs(want).max() > 0.01
    assert not outcome.findings
    assert np.abs(outcome.results[0] - want).max() < 2.0**-8
    assert np.abs(outcome.results[1] - lse).max() < 2.0**-8
