"""Answers that were begun elsewhere and go on here: the same as those that were never interrupted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import Lab, Scene
from test_drafted import PLAIN, PROMPT, generated
from test_speculation import WISHES, Alternating

from samebits import SamplingParams
from samebits.engine.request_options import RequestOptions
from samebits.scheduler import Policy


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("wish", WISHES)
def test_every_wish_of_a_request(any_lab: Lab, wish: str, temperature: float) -> None:
    """Penalties, formats, stop strings, log-probabilities and hashes depend on tokens that were drawn elsewhere."""
    params = SamplingParams(
        **{"max_tokens": 24, "temperature": temperature, "seed": 5, "hash_logits": True, **WISHES[wish]}
    )
    vocab_size = any_lab.runner.vocab_size
    options: Any = {"make_mask": lambda: Alternating(vocab_size)} if wish == "grammar" else {}
    want = generated(any_lab.engine(), PROMPT, params, **options)
    for i, answer in enumerate(want):
        for count in {0, 1, len(answer.token_ids) // 2, len(answer.token_ids) - 1} - {-1}:
            drafts = {"drafted": answer.token_ids[:count], "sample_indices": [i], "goes_on": True}
            assert generated(any_lab.engine(), PROMPT, params, **options, **drafts) == [answer]


def test_its_pieces_come_once_each_from_the_first(any_lab: Lab) -> None:
    (want,) = generated(any_lab.engine(), PROMPT, PLAIN)
    engine = any_lab.engine()
    job = engine.generate(PROMPT, PLAIN, RequestOptions(drafted=want.token_ids[:37], goes_on=True))
    engine.complete(job)
    assert [piece.token_id for _, piece in job.events] == list(want.token_ids)


@pytest.mark.parametrize("at", [0, 20, 36])
def test_tokens_that_are_not_drawn_here_end_it(any_lab: Lab, at: int) -> None:
    (want,) = generated(any_lab.engine(), PROMPT, PLAIN)
    begun = list(want.token_ids[:37])
    begun[at] ^= 1
    (found,) = generated(any_lab.engine(), PROMPT, PLAIN, drafted=begun, goes_on=True)
    assert (found.finish_reason, found.token_ids) == ("diverged", want.token_ids[: at + 1])


def test_among_others_in_any_scene(any_lab: Lab) -> None:
    """Preempted in the middle of what was begun, or behind it."""
    (want,) = generated(any_lab.engine(), PROMPT, PLAIN)

    @given(
        seed=st.integers(0, 1 << 30),
        num_pages=st.sampled_from([None, 9, 12, 20]),
        budget=st.sampled_from([1, 5, 17, "dynamic"]),
        count=st.sampled_from([1, 3, 20, 45, 59]),
    )
    @settings(max_examples=7, deadline=None, derandomize=True)
    def play(seed: int, num_pages: Any, budget: Any, count: int) -> None:
        engine = any_lab.engine(num_pages, policy=Policy(budget))
        begun = want.token_ids[:count]
        jobs = [
            engine.generate(PROMPT, PLAIN, RequestOptions(drafted=begun, priority=p, goes_on=True)) for p in (0, 0, -1)
        ]
        assert Scene(5, seed, 1.0).play(engine) == any_lab.alone
        assert [job.completions() for job in jobs] == [[want]] * 3

    play()
