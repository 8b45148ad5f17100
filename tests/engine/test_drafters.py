"""Drafters by name: prompt lookup, a smaller model, and how many tokens they are asked for."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_tiny import write_random_tiny
from scenes import PARAMS, Lab, Scene

from samebits import LLM, SamplingParams
from samebits.core.errors import BadInput
from samebits.engine.drafts.acceptance import LEVELS, Acceptance, best_length
from samebits.engine.drafts.choice import make_drafter
from samebits.engine.drafts.drafter import Wanted
from samebits.engine.drafts.ngram import LOOKUPS, NgramDrafter
from samebits.engine.drafts.pace import Pace
from samebits.engine.drafts.speculation import Speculation

GREEDY = PARAMS["greedy"]
COSTS = tuple(1 + 0.3 * count for count in range(9))


def last_before(tokens: list[int], most: int) -> list[int]:
    """Prompt lookup by looking through everything."""
    for length, num_good in LOOKUPS:
        for end in range(len(tokens) - 1, length - 1, -1):
            if len(tokens) > length and tokens[end - length : end] == tokens[-length:]:
                count = min(most, num_good)
                return (tokens[end : end + count] * count)[:count]
    return []


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.data())
def test_lookup_finds_what_a_look_through_everything_finds(tokens: list[int], data: st.DataObject) -> None:
    drafter, num_known = NgramDrafter(), 0
    while num_known < len(tokens):
        num_known = data.draw(st.integers(num_known + 1, len(tokens)))
        most = data.draw(st.integers(1, 6))
        known = tokens[:num_known]
        (found,) = drafter.propose([Wanted("key", np.array(known, np.int32), most, GREEDY, 0)])
        assert found.tolist() == last_before(known, most)
    drafter.forget("key")
    (found,) = drafter.propose([Wanted("key", np.array([1, 1], np.int32), 3, GREEDY, 0)])
    assert found.tolist() == []


def test_more_is_asked_of_those_who_guess_well() -> None:
    assert [best_length(level, COSTS) for level in (0, LEVELS // 4, LEVELS)] == [0, 0, 8]
    good, bad = Acceptance(), Acceptance()
    for _ in range(20):
        good.see(4, 4)
        bad.see(4, 0)
    assert good.wish(COSTS) == 8
    assert bad.wish(COSTS) == 0
    for _ in range(400):
        bad.see(0, 0)
    assert bad.wish(COSTS) > 0  # it gets another chance


class Few:
    """Always has one guess, however many are wanted."""

    def propose(self, wanted: Sequence[Wanted]) -> list[np.ndarray]:
        return [want.tokens[-1:].copy() for want in wanted]

    def forget(self, key: Hashable) -> None:
        """Nothing is kept."""


@pytest.mark.parametrize(("costs", "is_used"), [((1.0, 1.2, 1.4), True), ((1.0, 2.1, 1.2), False)])
def test_guesses_that_are_too_few_for_a_dearer_step_are_left(lab: Lab, costs: Any, is_used: bool) -> None:
    engine = lab.engine()
    engine.speculation = Speculation(Few(), lab.runner.vocab_size, Pace(costs, batch_tokens=8))
    engine.complete(engine.generate([5, 6, 7], SamplingParams(max_tokens=8, seed=1, ignore_eos=True)))
    assert bool(engine.speculation.num_drafted) == is_used


def test_a_model_that_guesses_for_itself_is_nearly_always_right(lab: Lab, random_tiny: Path) -> None:
    """The same model draws the same tokens, since it draws with the same noise; only shaped answers differ."""
    engine = lab.engine(drafter=make_drafter(f"draft:{random_tiny}", lab.runner, lab.tokenizer))
    assert Scene(0, 1).play(engine) == lab.alone
    assert engine.speculation is not None
    drafted, taken = engine.speculation.num_drafted, engine.speculation.num_taken
    assert drafted > 30
    assert taken > 0.6 * drafted


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_draw_of_the_same_model_is_always_right(lab: Lab, random_tiny: Path, temperature: float) -> None:
    engine = lab.engine(drafter=make_drafter(f"draft:{random_tiny}", lab.runner, lab.tokenizer))
    params = SamplingParams(max_tokens=60, temperature=temperature, seed=3, n=2, ignore_eos=True, hash_logits=True)
    answers = []
    for each in (engine, lab.engine()):
        job = each.generate([5, 6, 7], params)
        each.complete(job)
        answers.append(job.completions())
    assert answers[0] == answers[1]
    assert engine.speculation is not None
    assert engine.speculation.num_taken == engine.speculation.num_drafted > 60


def test_another_model_changes_no_bit(lab: Lab, tiny_path: Path) -> None:
    engine = lab.engine(drafter=make_drafter(f"draft:{tiny_path}", lab.runner, lab.tokenizer))
    for seed in range(2):
        assert Scene(4, seed, 1.0).play(engine) == lab.alone
    assert engine.speculation is not None
    assert engine.speculation.num_drafted


@pytest.mark.parametrize(
    ("speculate", "message"),
    [
        ("", "drafter is '', but must be 'ngram', or 'draft:MODEL' with a model's name"),
        ("draft:", "drafter is 'draft:', but must be 'ngram', or 'draft:MODEL'"),
        ("bigram", "drafter is 'bigram', but must be 'ngram'"),
        (7, "speculate is 7, but must be a name"),
    ],
)
def test_what_names_no_drafter(tiny_path: Path, speculate: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        LLM(tiny_path, speculate=speculate)


def test_a_model_with_another_vocabulary_is_refused(tiny_path: Path, tmp_path: Path) -> None:
    one = (1).to_bytes(8, "little")  # before each text of a character
    data = write_random_tiny(tmp_path / "other.gguf").read_bytes()
    swapped = data.replace(one + b"A" + one + b"B", one + b"B" + one + b"A", 1)
    assert swapped != data
    (tmp_path / "other.gguf").write_bytes(swapped)
    with pytest.raises(BadInput, match=r".*other.gguf is b'B' as token .*, but must be b'A': the same vocab"):
        LLM(tiny_path, speculate=f"draft:{tmp_path / 'other.gguf'}")


def test_llm_with_prompt_lookup(tiny_path: Path, tiny: LLM) -> None:
    params = SamplingParams(max_tokens=30, temperature=0, seed=1, hash_logits=True, ignore_eos=True)
    llm = LLM(tiny_path, speculate="ngram")
    prompts = [[5, 6, 7, 8] * 5, [9, 9, 9, 9]]
    assert llm.generate(prompts, params) == tiny.generate(prompts, params)
    assert llm.engine.speculation is not None
    assert llm.engine.speculation.num_taken > 0
