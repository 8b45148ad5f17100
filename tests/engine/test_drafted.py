"""Answers whose tokens are expected: verified in chunks, like a prompt, with the bits that generating them gave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from guessing import Knowing
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import PARAMS, Lab, Scene, prompt_of
from test_speculation import WISHES, Alternating, steps_of

from samebits import SamplingParams
from samebits.core.errors import BadInput
from samebits.engine.answer import Completion
from samebits.engine.engine import Engine
from samebits.engine.request_options import RequestOptions
from samebits.scheduler import Policy

PLAIN = SamplingParams(max_tokens=60, temperature=0.9, seed=4, hash_logits=True, ignore_eos=True)
PROMPT = [int(i * i + 3) % 250 for i in range(33)]


def generated(engine: Engine, prompt: list[int], params: SamplingParams, **options: Any) -> list[Completion]:
    job = engine.generate(prompt, params, RequestOptions(**options))
    engine.complete(job)
    return job.completions()


def test_as_many_steps_as_a_prompt_takes(any_lab: Lab) -> None:
    (want,) = generated(any_lab.engine(), PROMPT, PLAIN)
    engine = any_lab.engine(policy=Policy(16))
    job = engine.generate(PROMPT, PLAIN, RequestOptions(drafted=want.token_ids))
    assert steps_of(engine, job) <= -(-(len(PROMPT) + 60) // 16) + 2
    assert job.completions() == [want]
    assert [piece.token_id for _, piece in job.events] == list(want.token_ids)
    assert engine.scheduler.pages.num_used == 0


@pytest.mark.parametrize("at", [0, 1, 14, 15, 16, 17, 31, 59])
def test_it_ends_where_another_token_is_drawn(any_lab: Lab, at: int) -> None:
    (want,) = generated(any_lab.engine(), PROMPT, PLAIN)
    engine = any_lab.engine()
    drafted = list(want.token_ids)
    drafted[at] ^= 1
    (found,) = generated(engine, PROMPT, PLAIN, drafted=drafted)
    assert found.finish_reason == "diverged"
    assert found.token_ids == want.token_ids[: at + 1]
    (short,) = generated(any_lab.engine(), PROMPT, replace(PLAIN, max_tokens=at + 1))
    assert (found.text, found.logits_sha256) == (short.text, short.logits_sha256)
    engine.scheduler.check_integrity()
    assert engine.scheduler.pages.num_used == 0
    assert generated(engine, PROMPT, PLAIN) == [want]  # no page and no snapshot holds what was refused


def test_a_part_of_an_answer_is_unfinished(any_lab: Lab) -> None:
    engine = any_lab.engine()
    (want,) = generated(engine, PROMPT, PLAIN)
    for count in (1, 16, 37):
        (found,) = generated(engine, PROMPT, PLAIN, drafted=want.token_ids[:count])
        assert (found.finish_reason, found.token_ids) == ("unfinished", want.token_ids[:count])
    (none,) = generated(engine, PROMPT, PLAIN, drafted=[])
    assert (none.finish_reason, none.token_ids) == ("unfinished", ())


def test_one_of_several_samples(any_lab: Lab) -> None:
    prompt = prompt_of("seven samples", any_lab.runner.vocab_size)
    want, params = any_lab.alone["seven samples"], PARAMS["seven samples"]
    for i in (0, 3, 6):
        drafted = want[i].token_ids
        assert generated(any_lab.engine(), prompt, params, drafted=drafted, sample_indices=[i]) == [want[i]]
    assert generated(any_lab.engine(), prompt, params, sample_indices=[5, 2]) == [want[5], want[2]]


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("wish", WISHES)
def test_every_wish_of_a_request(any_lab: Lab, wish: str, temperature: float) -> None:
    params = SamplingParams(
        **{"max_tokens": 24, "temperature": temperature, "seed": 5, "hash_logits": True, **WISHES[wish]}
    )
    vocab_size = any_lab.runner.vocab_size
    options: Any = {"make_mask": lambda: Alternating(vocab_size)} if wish == "grammar" else {}
    want = generated(any_lab.engine(), PROMPT, params, **options)
    engine = any_lab.engine()
    for i, answer in enumerate(want):
        drafts = {"drafted": answer.token_ids, "sample_indices": [i]}
        assert generated(engine, PROMPT, params, **options, **drafts) == [answer]


def test_among_others_in_any_scene(any_lab: Lab) -> None:
    """Of a request among others, with and without guesses for those, in tight pools."""
    (want,) = generated(any_lab.engine(), PROMPT, PLAIN)

    @given(
        seed=st.integers(0, 1 << 30),
        num_pages=st.sampled_from([None, 9, 12, 20]),
        budget=st.sampled_from([1, 5, 17, "dynamic"]),
        at=st.sampled_from([None, None, 3, 20, 45]),
    )
    @settings(max_examples=7, deadline=None, derandomize=True)
    def play(seed: int, num_pages: Any, budget: Any, at: int | None) -> None:
        drafter = None if any_lab.runner.has_slots else Knowing(any_lab, 0.7, seed)
        engine = any_lab.engine(num_pages, policy=Policy(budget), drafter=drafter)
        drafted = np.array(want.token_ids)
        if at is not None:
            drafted[at] ^= 1
        jobs = [engine.generate(PROMPT, PLAIN, RequestOptions(drafted=drafted, priority=p)) for p in (0, 0, -1)]
        assert Scene(5, seed, 1.0).play(engine) == any_lab.alone
        for job in jobs:
            (found,) = job.completions()
            assert found == want if at is None else found.token_ids == want.token_ids[: at + 1]

    play()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drafted": range(3, 64)}, "drafted has 61 tokens, but must have at most 60, what the answer may have"),
        ({"drafted": [-1]}, "token id is -1, but must be from 0 to 264"),
        ({"drafted": [265]}, "token id is 265, but must be from 0 to 264"),
        ({"drafted": [5], "n": 2}, "sample_indices is missing: it must be one: the sample whose tokens are"),
        ({"drafted": [5], "n": 2, "sample_indices": [0, 1]}, r"\[0, 1\], but must be one: the sample whose tokens"),
        ({"sample_indices": []}, r"sample_indices is \[\], but must be one or more, none of them twice"),
        ({"sample_indices": [0, 0]}, r"sample_indices is \[0, 0\], but must be one or more, none of them"),
        ({"sample_indices": [1]}, "sample_indices is 1, but must be from 0 to 0"),
    ],
)
def test_what_cannot_be_meant(lab: Lab, options: dict[str, Any], message: str) -> None:
    engine = lab.engine()
    params = replace(PLAIN, n=options.pop("n", 1))
    with pytest.raises(BadInput, match=message):
        engine.generate(PROMPT, params, RequestOptions(**options))
    assert engine.is_idle
