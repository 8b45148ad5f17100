"""Steps of a few requests that a person can follow."""

from __future__ import annotations

import numpy as np
import pytest
from scheduler_drive import Drive

from samebits.cache import PageCache
from samebits.core.errors import BadInput
from samebits.scheduler import Policy, PromptRequest, Scheduler, Sequence, StepPlan
from samebits.scheduler.request import FINISHED, RUNNING, WAITING

SMALL = Policy(max_batch_tokens=16, min_prefill_tokens=4, max_prefill_chunk=8)


def drive(num_pages: int = 100, page_size: int = 4, max_sequences: int = 8, policy: Policy = SMALL) -> Drive:
    return Drive(PageCache(num_pages, page_size, max_sequences, 64), policy)


def counts(plan: StepPlan | None) -> dict[Sequence, int]:
    assert plan is not None
    return dict(zip(plan.sequences, np.diff(plan.batch.qo_indptr).tolist(), strict=True))


def test_prompts_take_what_decodes_leave() -> None:
    d = drive()
    (short,) = d.add([1] * 3, num_new=9)
    d.step()
    (long,) = d.add([2] * 30)
    (other,) = d.add([3] * 30)
    assert counts(d.step()) == {short: 1, long: 8, other: 7}
    d.drain()


def test_a_step_without_budget_admits_nobody() -> None:
    d = drive(policy=Policy(prefill_budget=4))
    (first,) = d.add([1] * 12)
    (second,) = d.add([2] * 12)
    assert counts(d.step()) == {first: 4}
    assert counts(d.step()) == {first: 4}
    assert second.state == WAITING
    d.drain()


def test_a_known_prefix_is_not_computed_again() -> None:
    d = drive()
    d.add(list(range(20)))
    d.drain()
    (again,) = d.add([*range(20), 7])
    assert counts(d.step()) == {again: 1}
    assert again.num_cached_tokens == 20
    d.drain()


def test_one_whose_prefix_is_coming_lets_others_pass() -> None:
    d = drive()
    (first,) = d.add(list(range(20)))
    (same,) = d.add([*range(20), 5])
    (other,) = d.add([9] * 5)
    assert counts(d.step()) == {first: 8, other: 5}
    d.step()
    assert counts(d.step()).get(same) is None
    assert counts(d.step()) == {same: 1}
    d.drain()


def test_all_logits_wanted_means_no_hit() -> None:
    d = drive()
    d.add(list(range(20)))
    d.drain()
    (again,) = d.add(list(range(20)), wants_all=True, draws=False)
    assert counts(d.step()) == {again: 8}
    assert again.num_cached_tokens == 0
    d.drain()


def test_logits_of_a_prompt_and_samples_come_from_one_pass_over_it() -> None:
    d = drive()
    samples = d.add(list(range(20)), num_new=3, num_samples=3, wants_all=True)
    scored, num_prompt_tokens = [], 0
    while (plan := d.step()) is not None:
        scored += [(part.sequence, part.position, part.count) for part in plan.scored]
        num_prompt_tokens += sum(count for s, count in counts(plan).items() if count > 1)
    assert scored == [(samples[0], 0, 8), (samples[0], 8, 8), (samples[0], 16, 4)]
    assert num_prompt_tokens == 20


def test_samples_share_their_prompt() -> None:
    d = drive()
    samples = d.add([1] * 6, num_new=5, num_samples=3)
    plan = d.step()
    assert plan is not None
    assert plan.sampled == samples
    assert d.pages.num_used == 2
    plan = d.step()
    assert plan is not None
    assert len(plan.copies) == 2  # the third writes where all three have been
    assert d.pages.num_used == 4
    d.drain()


def test_a_cancelled_sample_is_not_born() -> None:
    d = drive()
    first, second, third = d.add([1] * 6, num_new=5, num_samples=3)
    d.cancel(second)
    plan = d.step()
    assert plan is not None
    assert plan.sampled == [first, third]
    assert second.state == FINISHED
    d.drain()


def test_cancelling_the_first_before_birth_ends_all() -> None:
    d = drive()
    samples = d.add([1] * 6, num_new=5, num_samples=3)
    d.cancel(samples[0])
    assert {s.state for s in samples} == {FINISHED}
    assert d.step() is None


def test_the_last_is_preempted_where_pages_are_short_and_goes_on_later() -> None:
    d = drive(num_pages=7)
    (first,) = d.add([1] * 7, num_new=12)
    (last,) = d.add([2] * 7, num_new=12)
    while not last.num_preemptions:
        assert d.step()
    assert (first.num_preemptions, last.state) == (0, WAITING)
    d.drain()


def test_a_lower_priority_makes_way() -> None:
    d = drive(max_sequences=1)
    (low,) = d.add([1] * 7, num_new=12, priority=1)
    d.step()
    (high,) = d.add([2] * 7, num_new=12)
    assert counts(d.step()) == {high: 7}
    assert low.state == WAITING
    d.drain()


def test_the_first_in_order_does_not_wait_for_running_prompts() -> None:
    d = drive(policy=Policy(prefill_budget=4))
    d.add([1] * 30, priority=1)
    d.step()
    (high,) = d.add([2] * 7)
    assert counts(d.step()) == {high: 4}
    d.drain()


def test_the_first_in_order_does_not_wait_for_a_later_ones_prefix() -> None:
    d = drive(policy=Policy(prefill_budget=4))
    d.add(list(range(30)), priority=1)
    d.step()
    (high,) = d.add(list(range(30)))
    assert counts(d.step()) == {high: 4}
    d.drain()


def test_one_that_has_waited_long_enough_is_not_preempted_by_priority() -> None:
    d = drive(max_sequences=1, policy=Policy(prefill_budget=4, priority_steps=2))
    (low,) = d.add([1] * 30, priority=1, wants_all=True, draws=False)
    for _ in range(3):
        d.step()
    d.add([2] * 7)
    d.drain()
    assert low.num_preemptions == 0


@pytest.mark.parametrize(
    ("num_tokens", "num_samples", "draws", "message"),
    [(0, 1, True, "1 .. 63"), (64, 1, True, "1 .. 63"), (65, 1, False, "1 .. 64"), (5, 0, True, "1 or more")],
)
def test_what_could_never_run_is_refused(num_tokens: int, num_samples: int, draws: bool, message: str) -> None:
    scheduler = Scheduler(PageCache(100, 4, 2, 64), SMALL)
    with pytest.raises(BadInput, match=message):
        scheduler.add(PromptRequest(np.zeros(num_tokens, np.int32), num_samples=num_samples, draws=draws))


def test_nothing_to_do_is_no_plan() -> None:
    assert drive().step() is None


def test_a_finished_sequence_keeps_its_tokens_and_may_end_twice() -> None:
    d = drive()
    (only,) = d.add([1, 2, 3], num_new=9)
    d.step()
    assert only.state == RUNNING
    d.cancel(only)
    d.cancel(only)
    assert only.tokens.tolist()[:3] == [1, 2, 3]
    assert d.pages.num_used == 0
