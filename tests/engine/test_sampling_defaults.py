"""Sampling fields that a request leaves out: filled in once, before the receipt, and never over what was stated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gguf_writer import F32, U32
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tiny import write_random_tiny

from samebits import LLM, BadInput, SamplingParams
from samebits.api.texts import FileTexts
from samebits.core.sampling_defaults import FALLBACK, NEUTRAL, SamplingDefaults

STATED = {
    "temp": (F32, 0.8),
    "top_k": (U32, 9),
    "top_p": (F32, 0.9),
    "min_p": (F32, 0.01),
    "penalty_repeat": (F32, 1.2),
}
OWN = {"temperature": 0.8, "top_k": 9, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2}
PROMPT = "hello hi hello"

VALUES = {
    "temperature": st.one_of(st.just(0.0), st.floats(1e-4, 1e3)),
    "top_k": st.integers(0, 1 << 30),
    "top_p": st.floats(2.0**-16, 1),
    "min_p": st.floats(0, 1),
    "repetition_penalty": st.floats(1e-3, 1e3),
}
DEFAULTS = st.builds(SamplingDefaults, st.just("drawn"), **VALUES)


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    metadata = {f"general.sampling.{name}": value for name, value in STATED.items()}
    return write_random_tiny(tmp_path_factory.mktemp("models") / "stated.gguf", **metadata)


@pytest.fixture(scope="module")
def llm(model_path: Path) -> LLM:
    return LLM(model_path, context_len=128)


@settings(max_examples=30)
@given(st.fixed_dictionaries({}, optional=VALUES), DEFAULTS, DEFAULTS)
def test_stated_values_win_and_resolving_again_changes_nothing(
    stated: dict[str, Any], defaults: SamplingDefaults, others: SamplingDefaults
) -> None:
    params = SamplingParams(**stated).resolved(defaults)
    expected = {**defaults.values(), **stated}
    assert {name: getattr(params, name) for name in expected} == expected
    assert params.resolved(others) is params
    assert params == SamplingParams(**expected)


def test_none_is_left_out() -> None:
    assert SamplingParams(**dict.fromkeys(VALUES)) == SamplingParams()


def test_an_answer_is_drawn_with_the_models_own_values(llm: LLM, model_path: Path) -> None:
    assert llm.sampling_defaults.values() == OWN
    request = {"max_tokens": 12, "seed": 3, "hash_logits": True}
    left_out = llm.generate(PROMPT, request)[0]
    assert left_out == llm.generate(PROMPT, {**request, **OWN})[0]
    neutral = LLM(model_path, context_len=128, sampling_defaults="neutral").generate(PROMPT, request)[0]
    assert neutral == llm.generate(PROMPT, {**request, **NEUTRAL.values()})[0]
    assert neutral.token_ids != left_out.token_ids


@pytest.mark.parametrize("stated", [{}, {"temperature": 0}, {"temperature": 1.5, "top_k": 0}])
def test_a_receipt_states_what_was_drawn_with_and_replays(llm: LLM, model_path: Path, stated: dict[str, Any]) -> None:
    answer = llm.generate(PROMPT, {"max_tokens": 8, "seed": 1, "receipt": True, **stated})[0]
    assert answer.receipt is not None
    assert {name: getattr(answer.receipt.sampling, name) for name in OWN} == {**OWN, **stated}
    others = LLM(model_path, context_len=128, sampling_defaults="neutral")  # a replay takes nothing from them
    for replaying in (llm, others):
        (verdict,) = replaying.replay(answer.receipt)
        assert (verdict.cause, verdict.num_tokens) == (None, len(answer.token_ids))


def test_texts_of_a_model_that_runs_elsewhere_have_the_same_defaults(llm: LLM, model_path: Path) -> None:
    """Servers before replicas resolve requests themselves, so that a receipt states what the server showed."""
    assert FileTexts(model_path).sampling_defaults == llm.sampling_defaults
    assert FileTexts(model_path, "neutral").sampling_defaults == NEUTRAL


def test_a_model_that_states_nothing(tmp_path: Path) -> None:
    assert LLM(write_random_tiny(tmp_path / "plain.gguf"), context_len=64).sampling_defaults == FALLBACK


def test_another_choice_is_one_line(model_path: Path) -> None:
    with pytest.raises(BadInput, match="sampling_defaults is 'greedy', but must be model or neutral"):
        LLM(model_path, sampling_defaults="greedy")
