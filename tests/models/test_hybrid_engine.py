"""Hybrids through the engine: a request's logits have one hash, whatever steps it is computed in and beside whom."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from checkpoint_runs import DATA, expected, make_runner, run_prompt

from samebits import LLM, SamplingParams
from samebits.models.checkpoint import open_checkpoint

NUM_ANSWERED = 20  # from position 40 on: two boundaries are crossed while it answers
PARAMS = SamplingParams(max_tokens=NUM_ANSWERED, temperature=0, hash_logits=True, ignore_eos=True)
NAMES = ("qwen3next", "qwen35/model-f32.gguf", "mamba2", "falcon_h1")
STEPS = tuple(zip(NAMES, (7, 16, 4, 23), strict=True))  # at most so many tokens in a step


def prompt_of(name: str) -> list[int]:
    return [int(token) for token in expected(name.split("/")[0]).token_ids[:40]]


def make_llm(name: str, max_batch_tokens: int) -> LLM:
    sizes = {"max_batch_tokens": max_batch_tokens, "max_sequences": 4, "context_len": 64}
    return LLM(DATA / name, backend="reference", numerics="portable", k_format="f32", v_format="f32", **sizes)


@cache
def alone(name: str) -> tuple[tuple[int, ...], str | None]:
    (answer,) = make_llm(name, 512).generate([prompt_of(name)], PARAMS)
    return tuple(answer.token_ids), answer.logits_sha256


@pytest.mark.parametrize("name", NAMES)
def test_greedy_answer_is_that_of_the_whole_text(name: str) -> None:
    """The engine's tokens, decoded one by one, are the likeliest ones of the whole text in one step."""
    tokens, _ = alone(name)
    text = np.array([*prompt_of(name), *tokens], np.int32)
    logits = run_prompt(make_runner(open_checkpoint(DATA / name)), text)
    assert logits.argmax(axis=-1)[39:-1].tolist() == list(tokens)


@pytest.mark.parametrize(("name", "max_batch_tokens"), STEPS)
def test_any_step_among_others_and_after_a_hit(name: str, max_batch_tokens: int) -> None:
    llm = make_llm(name, max_batch_tokens)
    prompt = prompt_of(name)
    others = [[*prompt[:17], 5, 6, 7], prompt[::-1], [9] * 3]
    among = llm.generate([others[0], prompt, *others[1:]], PARAMS)[1]
    num_cached = llm.engine.scheduler.num_cached_tokens
    (after,) = llm.generate([prompt], PARAMS)
    assert llm.engine.scheduler.num_cached_tokens - num_cached in (16, 32)  # it resumed what was computed before
    assert [(tuple(a.token_ids), a.logits_sha256) for a in (among, after)] == [alone(name)] * 2
