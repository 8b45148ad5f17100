"""Prefixes of models that keep states in slots: where they are resumed, who waits for whom, and what is saved."""

from __future__ import annotations

import numpy as np
import pytest
from scheduler_drive import Drive

from samebits.cache import PageCache, PrefixChain, SlotCopy
from samebits.scheduler import Policy, Sequence, StepPlan

PAGE = 4
SMALL = Policy(max_batch_tokens=16, min_prefill_tokens=4, max_prefill_chunk=8)
FIRST = 8  # the first snapshot's slot: those before are running sequences'


def drive(num_pages: int = 100, max_sequences: int = 8, num_snapshots: int = 8, policy: Policy = SMALL) -> Drive:
    return Drive(PageCache(num_pages, PAGE, max_sequences, 64, num_snapshots=num_snapshots), policy)


def counts(plan: StepPlan | None) -> dict[Sequence, int]:
    assert plan is not None
    return dict(zip(plan.sequences, np.diff(plan.batch.qo_indptr).tolist(), strict=True))


def drained(d: Drive) -> dict[Sequence, list[int]]:
    """Tokens of every sequence in each step until all have ended."""
    found: dict[Sequence, list[int]] = {}
    while (plan := d.step()) is not None:
        for sequence, count in counts(plan).items():
            found.setdefault(sequence, []).append(count)
    return found


def test_a_prompts_last_boundary_can_be_resumed() -> None:
    d = drive()
    d.add(list(range(6)), num_new=1)
    d.drain()
    (same,) = d.add(list(range(6)))
    plan = d.step()
    assert plan is not None
    assert plan.slot_copies == (SlotCopy(0, FIRST, True), SlotCopy(FIRST, 0, True))  # of the one before, for this one
    assert counts(plan) == {same: 2}
    assert same.num_cached_tokens == 4
    d.drain()


def test_a_prompt_that_ends_at_a_boundary_stops_before_its_last_token() -> None:
    d = drive()
    (first,) = d.add(list(range(8)))
    assert drained(d) == {first: [7, 1]}
    (same,), (longer,) = d.add(list(range(8))), d.add(list(range(9)))
    assert counts(d.step()) == {same: 4, longer: 1}
    assert (same.num_cached_tokens, longer.num_cached_tokens) == (4, 8)
    d.drain()


def test_what_was_generated_can_be_resumed() -> None:
    d = drive()
    (turn,) = d.add(list(range(5)), num_new=9)
    d.drain()
    (answer,) = d.add([*turn.tokens.tolist(), 9, 9])
    d.step()
    assert answer.num_cached_tokens == 12  # 13 of 14 tokens were computed
    d.drain()


def test_pages_without_a_snapshot_are_computed_again_and_cut_where_they_end() -> None:
    d = drive(policy=Policy(prefill_budget=64))
    stem = list(range(20))
    d.add([*stem, *[30] * 9])
    d.drain()
    (branch,) = d.add([*stem, *[40] * 9])  # five pages are known, the snapshot lies beyond them
    (next_one,) = d.add([*stem, *[50] * 9])
    assert counts(d.step()) == {branch: 20}
    plan = d.step()
    assert counts(plan) == {branch: 9, next_one: 9}
    assert (branch.num_cached_tokens, next_one.num_cached_tokens) == (0, 20)
    d.drain()


def test_one_that_waits_for_pages_has_the_chunk_cut_where_it_branches_off() -> None:
    d = drive(policy=Policy(max_batch_tokens=24, min_prefill_tokens=4, max_prefill_chunk=14))
    (first,) = d.add(list(range(30)))
    (second,) = d.add([*range(20), 50])
    assert counts(d.step()) == {first: 14}
    assert counts(d.step()) == {first: 6}
    assert counts(d.step()) == {first: 10, second: 1}
    assert second.num_cached_tokens == 20
    d.drain()


def test_a_chunk_that_ends_within_the_page_behind_a_cut_is_not_cut() -> None:
    d = drive(policy=Policy(max_batch_tokens=24, min_prefill_tokens=4, max_prefill_chunk=11))
    (first,) = d.add(list(range(30)))
    (second,) = d.add([*range(20), 50])
    assert drained(d) == {first: [11, 11, 8], second: [1]}
    assert second.num_cached_tokens == 20


def test_a_long_prompt_leaves_snapshots_on_its_way() -> None:
    pages = PageCache(1000, PAGE, 2, 2000, num_snapshots=16)
    d = Drive(pages, Policy(prefill_budget=50))
    d.add(list(range(1800)))
    d.drain()
    prompt = np.arange(1800)
    held = [n for n in range(0, 1800, PAGE) if _is_held(d, prompt, n)]
    assert len(held) in (4, 5)
    assert max(np.diff([0, *held])) <= 4 * (500 // 4) + 100  # a quarter of the pool over the whole context


def _is_held(d: Drive, prompt: np.ndarray, num_tokens: int) -> bool:
    """Whether a prompt that parts from this one after so many tokens resumes there."""
    prefixes = PrefixChain(PAGE).upto(prompt.astype(np.int32), num_tokens // PAGE)
    return num_tokens > 0 and len(d.pages.match(prefixes, num_tokens + 1).pages) * PAGE == num_tokens


def test_samples_get_all_that_their_parent_holds() -> None:
    d = drive()
    d.add([1] * 6, num_new=5, num_samples=3)
    d.step()
    plan = d.step()
    assert plan is not None
    assert plan.slot_copies == (SlotCopy(0, FIRST, True), SlotCopy(0, 1, False), SlotCopy(0, 2, False))
    d.drain()


def test_a_preempted_sequence_goes_on_from_its_last_boundary() -> None:
    d = drive(max_sequences=1)
    (low,) = d.add([1] * 7, num_new=12, priority=1)
    for _ in range(7):
        d.step()
    d.add([2] * 7, num_new=2)
    d.drain()
    assert (low.num_preemptions, low.num_cached_tokens) == (1, 12)  # of 13 that were computed


def test_scores_neither_take_nor_leave_snapshots() -> None:
    d = drive()
    d.add(list(range(20)), wants_all=True, draws=False)
    d.drain()
    assert d.pages.states is not None
    assert d.pages.states.pool.num_held == 0


def test_without_sharing_there_are_no_snapshots() -> None:
    d = Drive(PageCache(100, PAGE, 8, 64, num_snapshots=8), SMALL, shares_prefixes=False)
    d.add(list(range(20)), num_new=9)
    d.drain()
    assert d.pages.states is not None
    assert d.pages.states.pool.num_held == 0


def test_one_that_a_failed_step_was_to_copy_a_snapshot_for_starts_anew() -> None:
    """It was admitted in that step, but had no budget to be in it."""
    d = drive(policy=Policy(prefill_budget=4))
    d.add(list(range(9)))
    d.drain()
    (low,) = d.add([60] * 20, priority=1)
    d.step()
    d.add([50] * 30, priority=-1)
    d.step()
    (between,) = d.add([*range(9), 3])
    d.fail_step()
    assert (low.num_preemptions, between.num_preemptions) == (0, 1)
    d.drain()


@pytest.mark.parametrize(
    "policy",
    [
        Policy(),
        Policy(prefill_budget=256),
        Policy(prefill_budget="off"),
        Policy(max_batch_tokens=2048, max_prefill_chunk=2048),
        Policy(max_batch_tokens=700, max_prefill_chunk=700),
    ],
    ids=["dynamic", "256", "off", "whole prompts", "700"],
)
@pytest.mark.parametrize("tail", [1, 50, 64])
def test_32_users_with_one_prefix_compute_it_about_once(policy: Policy, tail: int) -> None:
    shared, num_users = list(range(1024)), 32
    d = Drive(PageCache(4000, 16, num_users, 8192, num_snapshots=num_users), policy)
    users = [d.add([*shared, *[2000 + i] * tail], num_new=2)[0] for i in range(num_users)]
    found = drained(d)
    num_computed = sum(sum(steps) for steps in found.values())
    needed = num_users * (tail + 1)  # each one's own tokens, and one that is generated
    saved = 1 - (num_computed - needed - len(shared)) / (num_users - 1) / len(shared)
    assert saved >= 0.85
    assert sum(user.num_cached_tokens for user in users) >= 0.85 * (num_users - 1) * len(shared)
