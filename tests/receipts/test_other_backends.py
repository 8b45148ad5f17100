"""Receipts made on one backend are confirmed on another, of any kind of answer, and guesses leave no trace in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import permutations
from pathlib import Path

import pytest
from test_tampering import grammar_receipt

from samebits import LLM, SamplingParams
from samebits.backends.discovery import default_name, get
from samebits.core.errors import SamebitsError
from samebits.loaders.catalog import DEFAULT_MODEL
from samebits.loaders.pull import pull
from samebits.receipts.record import Receipt, from_json

MODELS = Path(__file__).parents[1] / "models" / "data"
TEXT = "hello hi aaaa hello hi aaaa hello"
SAMPLED = SamplingParams(max_tokens=12, temperature=1.1, top_p=0.9, seed=11, ignore_eos=True, receipt=True)
BACKENDS = [pytest.param(a, b, id=f"{a}-{b}") for a, b in permutations(("cpu", "reference", "webgpu"), 2)]
Load = Callable[..., LLM]


def available(*names: str) -> None:
    """Skips the test where one of the backends is not here."""
    for name in names:
        try:
            reason = get(name).reason
        except SamebitsError as error:
            reason = str(error)
        if reason:
            pytest.skip(reason)


@pytest.fixture(scope="module")
def load() -> Load:
    """Models by path, backend and the way of guessing, each loaded once."""
    loaded: dict[tuple[Path, str, str | None], LLM] = {}

    def get_one(path: Path, backend: str, speculate: str | None = None) -> LLM:
        key = (path, backend, speculate)
        if key not in loaded:
            loaded[key] = LLM(path, backend=backend, context_len=128, max_sequences=4, speculate=speculate)
        return loaded[key]

    return get_one


def receipts_of(llm: LLM, model_path: Path) -> list[Receipt]:
    """Of answers with several samples, penalties, a bias, a stop string and a grammar."""
    shaped = replace(SAMPLED, repetition_penalty=1.2, logit_bias={75: 2.0}, min_tokens=3, stop=("e", "t"))
    answers = llm.generate([TEXT, TEXT], [replace(SAMPLED, n=2), shaped])
    found = [answer.receipt for answer in answers]
    return [*(r for r in found if r is not None), grammar_receipt(llm, model_path, "(ab|cd|[e-h]){4}")]


@pytest.fixture(scope="module")
def made_by(load: Load, model_path: Path) -> Callable[[str], list[bytes]]:
    """The receipts of a backend's answers, made once."""
    return cache(lambda name: [receipt.to_json() for receipt in receipts_of(load(model_path, name), model_path)])


@pytest.mark.parametrize(("made_on", "checked_on"), BACKENDS)
def test_what_one_backend_answers_another_confirms(
    load: Load, model_path: Path, made_by: Callable[[str], list[bytes]], made_on: str, checked_on: str
) -> None:
    available(made_on, checked_on)
    made = made_by(made_on)
    assert len(made) == 4
    found = load(model_path, checked_on).replay([from_json(data) for data in made])
    assert all(verdict.is_same for verdict in found), found


def test_guesses_leave_no_trace_in_a_receipt(load: Load, model_path: Path) -> None:
    name = default_name()
    plain, guessing = load(model_path, name), load(model_path, name, "ngram")
    made = [[r.to_json() for r in receipts_of(llm, model_path)] for llm in (plain, guessing)]
    assert made[0] == made[1]
    assert all(verdict.is_same for verdict in guessing.replay([from_json(data) for data in made[0]]))


@pytest.mark.parametrize("name", ["lfm2", "qwen3next", "gpt_oss", "gemma3"])
def test_models_of_other_kinds_confirm_theirs(name: str) -> None:
    """States in slots, experts, windows: prompts of token ids, since these files have no tokenizer."""
    path = MODELS / name / "model-f32.gguf"
    available("cpu")
    made = LLM(path, backend="cpu").generate([[5, 6, 7, 8] * 9, [9] * 20], replace(SAMPLED, max_tokens=24))
    several = [from_json(answer.receipt.to_json()) for answer in made if answer.receipt]
    assert len(several) == 2
    for backend in ("cpu", "reference"):
        found = LLM(path, backend=backend).replay(several)
        assert [(v.cause, v.num_tokens) for v in found] == [(None, 24)] * 2, found


def test_a_short_answer_of_the_default_model() -> None:
    try:
        path = pull(DEFAULT_MODEL, lambda *_: None)
    except SamebitsError as error:
        pytest.skip(f"the default model cannot be fetched here: {error}")
    available("cpu")
    made = LLM(path, backend="cpu", context_len=64).generate("The sky is", replace(SAMPLED, max_tokens=3))[0].receipt
    assert made is not None
    found = LLM(path, backend="reference", context_len=64).replay(made)[0]
    assert found.is_same, found
