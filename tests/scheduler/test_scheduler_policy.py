"""The budget's arithmetic against its formulas, written out here once more."""

from __future__ import annotations

from typing import Any

import pytest

from samebits.core.errors import BadInput
from samebits.scheduler import Policy

SIZES = [(512, 128), (256, 256), (64, 128), (4096, 512), (1, 1)]  # (max_batch_tokens, min_prefill_tokens)


def ceil_div(a: int, b: int) -> int:
    return (a + b - 1) // b


@pytest.mark.parametrize(("n_batch", "n_ubatch"), SIZES)
def test_dynamic_budget(n_batch: int, n_ubatch: int) -> None:
    target = max(n_batch, n_ubatch)
    policy = Policy(max_batch_tokens=n_batch, min_prefill_tokens=n_ubatch)
    for decodes in (0, 1, 100, 400, 5000):
        assert policy.budget(decodes) == max(n_ubatch, target - decodes)
        assert decodes + policy.budget(decodes) <= policy.max_step_tokens(decodes + 1)


@pytest.mark.parametrize(("n_batch", "n_ubatch"), SIZES)
@pytest.mark.parametrize("cap", [None, 1, 300, 3000, 10**6])
def test_chunk_cap(n_batch: int, n_ubatch: int, cap: int | None) -> None:
    target = max(n_batch, n_ubatch)
    policy = Policy(max_batch_tokens=n_batch, min_prefill_tokens=n_ubatch, max_prefill_chunk=cap)
    for n_ctx in (10, 2048, 8192, 131072):
        wanted = cap or min(target, max(n_ubatch, ceil_div(n_ctx, 25)))
        clamped = min(max(wanted, n_ubatch), target)  # to n_batch, or n_ubatch where that is larger
        assert policy.chunk_cap(n_ctx) == clamped


def test_figures_of_the_defaults() -> None:
    policy = Policy()
    assert (policy.budget(0), policy.budget(8), policy.budget(500)) == (512, 504, 128)
    assert (policy.chunk_cap(2048), policy.chunk_cap(8192), policy.chunk_cap(131072)) == (128, 328, 512)
    assert (policy.max_step_tokens(8), policy.max_step_tokens(1000)) == (512, 1127)


def test_room_for_guesses() -> None:
    policy = Policy(draft_batch_tokens=32)
    assert [policy.draft_room(n, 0, 64) for n in (1, 31, 32, 60)] == [31, 1, 0, 0]
    assert policy.draft_room(1, 1, 64) == 0  # a prompt is on its way
    assert Policy(prefill_budget=4, draft_batch_tokens=32).draft_room(2, 0, 3) == 4  # no larger step was planned for


def test_a_static_budget_is_the_same_beside_any_decodes() -> None:
    policy = Policy(prefill_budget=256)
    assert {policy.budget(n) for n in (0, 8, 1000)} == {256}
    assert policy.chunk_cap(8192) == 256
    assert Policy(prefill_budget=256, max_prefill_chunk=100).chunk_cap(8192) == 100
    assert policy.max_step_tokens(8) == 263


def test_off_does_not_look_at_decodes() -> None:
    policy = Policy(prefill_budget="off")
    assert (policy.budget(0), policy.budget(1000), policy.chunk_cap(8192)) == (2048, 2048, 2048)


@pytest.mark.parametrize(
    "wrong",
    [
        {"prefill_budget": "sometimes"},
        {"prefill_budget": 0},
        {"max_batch_tokens": 0},
        {"min_prefill_tokens": -1},
        {"max_prefill_chunk": 0},
        {"priority_steps": 0},
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(wrong))):
        Policy(**wrong)
