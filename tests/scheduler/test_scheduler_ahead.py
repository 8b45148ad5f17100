"""Plans that are made while the step before is still computed."""

from __future__ import annotations

import numpy as np

from samebits.cache import PageCache
from samebits.scheduler import Policy, PromptRequest, Scheduler, Sequence

PAGE = 4


def scheduler(num_pages: int = 40, max_sequences: int = 4) -> Scheduler:
    return Scheduler(PageCache(num_pages, PAGE, max_sequences, 64), Policy(prefill_budget=16))


def request(num_tokens: int, first: int = 1, **options: object) -> PromptRequest:
    return PromptRequest(np.arange(first, first + num_tokens, dtype=np.int32), **options)  # type: ignore[arg-type]


def decoding(s: Scheduler, *lengths: int) -> list[Sequence]:
    """Sequences whose prompts are computed and that have drawn a token each."""
    added = [s.add(request(length, 100 * i))[0] for i, length in enumerate(lengths)]
    while any(sequence.slot < 0 or s.slots.known[sequence.slot] == len(sequence.tokens) for sequence in added):
        plan = s.plan()
        assert plan is not None
        s.commit(plan, np.full(len(plan.sampled), 7, np.int32))
    return added


def test_it_is_the_plan_that_would_be_made_behind_the_commit() -> None:
    plans = []
    for is_ahead in (True, False):
        s = scheduler()
        decoding(s, 3, 7, 8)
        for token in range(20, 26):
            plan = s.plan()
            assert plan is not None
            tokens = token + np.arange(3, dtype=np.int32)
            ahead = s.plan_ahead(plan, ()) if is_ahead else None
            s.commit(plan, tokens)
            if is_ahead:
                assert ahead is not None
                ahead.batch.token_ids[:] = tokens[ahead.sources]
            following = ahead or s.plan()
            assert following is not None
            plans.append(following)
            s.commit(following, np.full(3, 50, np.int32))
            s.check_integrity()
    for ahead, behind in zip(plans[:6], plans[6:], strict=True):
        assert ahead.batch.arrays().keys() == behind.batch.arrays().keys()
        for name, array in ahead.batch.arrays().items():
            assert array.tolist() == behind.batch.array(name).tolist(), name
        for name in ("slots", "lengths", "sampled_at", "sampled_rows", "num_draws", "guesses"):
            assert getattr(ahead, name).tolist() == getattr(behind, name).tolist(), name


def test_those_that_end_are_left_out() -> None:
    s = scheduler()
    first, second, third = decoding(s, 3, 4, 5)
    plan = s.plan()
    assert plan is not None
    ahead = s.plan_ahead(plan, {second})
    assert ahead is not None
    assert ahead.sequences == [first, third]
    assert s.plan_ahead(plan, {first, second, third}) is None
    s.commit(plan, np.array([8, 9, 10], np.int32))
    s.finish(second)
    s.finish(third)  # by what it drew, which nobody knew
    s.commit(ahead, np.array([11], np.int32), np.array([1, 0], np.int32))
    s.check_integrity()
    assert s.slots.running == [first]
    assert s.slots.tokens[first.slot, :6].tolist() == [0, 1, 2, 7, 8, 11]
    s.finish(first)
    assert s.pages.num_used == 0


def test_none_where_more_is_to_be_decided() -> None:
    s = scheduler()
    decoding(s, 3, 4)
    s.add(request(6, 300))
    mixed = s.plan()  # somebody is admitted, and draws
    assert mixed is not None
    s.add(request(30, 400))
    assert s.plan_ahead(mixed, ()) is None  # one waits that could be admitted
    s.commit(mixed, np.full(3, 7, np.int32))
    chunk = s.plan()
    assert chunk is not None
    assert s.plan_ahead(chunk, ()) is None  # it is in the middle of its prompt
    s.commit(chunk, np.full(3, 7, np.int32))


def test_none_where_pages_are_short_and_nothing_is_taken_then() -> None:
    s = scheduler(num_pages=5)
    decoding(s, 3, 7)  # both fill their last page with this step's token, and one page is free
    plan = s.plan()
    assert plan is not None
    assert s.pages.num_free == 1
    assert s.plan_ahead(plan, ()) is None
    assert s.pages.num_free == 1


def test_one_that_waits_without_room_stops_nothing() -> None:
    s = scheduler(max_sequences=2)
    decoding(s, 3, 4)
    s.add(request(6, 300))
    plan = s.plan()
    assert plan is not None
    assert s.plan_ahead(plan, ()) is not None
    s.add(request(6, 300, priority=-1))
    s.commit(plan, np.full(2, 7, np.int32))
    assert s._could_admit()  # by preemption
