"""Queries at negative positions: sequences with more queries than tokens, which only calls without causality have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_results import differences

from samebits.ops import OPS
from samebits.ops.kv_cases import attention_case

OP = OPS["paged_attention"]
BEYOND: dict[str, Any] = {"attrs": {"causal": False, "return_lse": True}, "lengths": (3, 1), "queries": (5, 3)}
# each kernel of the portable tier, by the size of a head: registers, tiles, wide, general; the other tiers serve some
SIZES = [20, 64, 192, 320]


@pytest.mark.parametrize("size", SIZES)
def test_queries_before_the_first_token_see_all_keys(size: int) -> None:
    group = 8 if size > 256 else 2
    case = attention_case(f"beyond-{size}", k="f16", v="f16", heads=1, group=group, head=size, **BEYOND)
    with np.errstate(all="ignore"):
        assert list(differences(OP, case)) == []


def test_queries_before_the_first_token_of_a_latent_cache() -> None:
    latent: dict[str, Any] = {"kind": "mla", "heads": 1, "head": 576, "v_dim": 512, "k": "bf16", "v": "bf16"}
    case = attention_case("beyond-576", **latent, group=8, **BEYOND)
    with np.errstate(all="ignore"):
        assert list(differences(OP, case)) == []


@pytest.mark.parametrize("size", [20, 320])
def test_a_window_ends_at_the_position_of_a_query_before_the_first_token(size: int) -> None:
    group = 8 if size > 256 else 2
    given = {**BEYOND, "attrs": {"causal": False, "window_left": 1}, "given": ("alibi_slopes", "sinks")}
    case = attention_case(f"beyond-window-{size}", k="f16", v="f16", heads=1, group=group, head=size, **given)
    with np.errstate(all="ignore"):
        assert list(differences(OP, case)) == []


@pytest.mark.parametrize("window", [2**31 - 1, 2**33])
def test_the_widest_windows_leave_nothing_out(window: int) -> None:
    """No int32 holds what lies so far before a position below zero, nor such a window itself."""
    given = {**BEYOND, "attrs": {"causal": False, "window_left": window}}
    case = attention_case(f"beyond-{window}", k="f16", v="f16", heads=1, group=2, head=64, **given)
    with np.errstate(all="ignore"):
        assert list(differences(OP, case)) == []
