"""What a request may ask of its answers beside the draw: when they end, what is ruled out, and what comes back."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from samebits import LLM, SamplingParams
from samebits.core.errors import BadInput
from samebits.engine.answer import Completion
from samebits.engine.job import RequestFailed

PROMPT = "hello hi aaaa, what is this?"
PLAIN = SamplingParams(max_tokens=12, temperature=0, seed=0, ignore_eos=True, hash_logits=True)


@pytest.fixture(scope="module")
def llm(random_tiny: Path) -> LLM:
    return LLM(random_tiny, context_len=256, max_batch_tokens=16)


def only(llm: LLM, **wishes: object) -> Completion:
    return llm.generate([PROMPT], replace(PLAIN, **wishes))[0]  # type: ignore[arg-type]


def test_a_stop_token_ends_an_answer_and_is_shown_where_asked(llm: LLM) -> None:
    plain = only(llm)
    stop = plain.token_ids[4]
    first = plain.token_ids.index(stop)
    cut = only(llm, stop_token_ids=(stop,))
    assert (cut.token_ids, cut.finish_reason) == (plain.token_ids[: first + 1], "stop")
    assert cut.text == only(llm, max_tokens=first).text if first else cut.text == ""
    shown = only(llm, stop_token_ids=(stop,), include_stop=True)
    assert shown.text == only(llm, max_tokens=first + 1).text


def test_an_answer_does_not_end_before_its_least_length(llm: LLM) -> None:
    plain = only(llm)
    stop = plain.token_ids[2]
    later = only(llm, stop_token_ids=(stop,), min_tokens=6)
    assert len(later.token_ids) >= 6
    assert stop not in later.token_ids[:6]
    text = plain.text[2:4]
    assert len(only(llm, stop=(text,)).token_ids) < 12
    assert only(llm, stop=(text,), min_tokens=12).text == plain.text


def test_a_stop_string_is_part_of_the_text_where_asked(llm: LLM) -> None:
    text = only(llm).text
    stop = text[3:5]
    end = text.find(stop)
    assert only(llm, stop=(stop,)).text == text[:end]
    assert only(llm, stop=(stop,), include_stop=True).text == text[: end + len(stop)]
    assert (only(llm, stop=("~~", stop)).stop, only(llm).stop) == (stop, None)


def test_special_tokens_are_text_where_asked(llm: LLM) -> None:
    special = min(llm.tokenizer.control_ids - llm.tokenizer.special.end_ids)
    forced = {"allowed_token_ids": (special,), "max_tokens": 2}
    assert only(llm, **forced).text == ""
    assert only(llm, **forced, skip_special=False).text == 2 * llm.tokenizer.token_text(special) != ""


def test_only_allowed_tokens_and_no_bad_words(llm: LLM) -> None:
    allowed = (70, 71, 72)
    assert set(only(llm, allowed_token_ids=allowed).token_ids) <= set(allowed)
    z, blank, q = llm.tokenizer.encode("z q", False, False)

    def pairs(**wishes: object) -> set[tuple[int, int]]:
        ids = only(llm, temperature=5.0, max_tokens=100, allowed_token_ids=(z, blank, q), **wishes).token_ids
        return set(pairwise(ids))

    assert {(z, q), (q, q)} <= pairs()
    assert (z, q) not in (left := pairs(bad_words=("zq",)))
    assert (q, q) in left
    assert q not in {second for _, second in pairs(bad_words=("q",))}


def test_a_request_that_rules_out_everything_fails_alone(llm: LLM) -> None:
    letter = llm.tokenizer.encode("a", False, False)
    wishes = replace(PLAIN, allowed_token_ids=tuple(letter), bad_words=("a",))
    with pytest.raises(RequestFailed, match="none that is allowed"):
        llm.generate([PROMPT], wishes)
    assert only(llm).finish_reason == "length"


@pytest.mark.parametrize("n", [1, 3])
def test_log_probabilities_of_a_prompt_are_those_of_its_score(llm: LLM, n: int) -> None:
    score = llm.score(PROMPT, top_k=3)
    plain = replace(PLAIN, n=n, temperature=0.9)
    wanted = llm.generate([PROMPT], plain)
    answers = llm.generate([PROMPT, PROMPT], replace(plain, prompt_logprobs=3))
    for found in answers:
        assert found.prompt_logprobs is not None
        assert found.prompt_logprobs.token_logprobs == score.token_logprobs
        assert found.prompt_logprobs.top == score.top
    assert [replace(a, prompt_logprobs=None) for a in answers] == 2 * wanted


def test_log_probabilities_of_a_prompt_survive_preemption(random_tiny: Path) -> None:
    small = LLM(random_tiny, context_len=64, num_pages=13, page_size=8, max_sequences=4, max_batch_tokens=16)
    score = small.score(PROMPT, top_k=1)
    params = replace(PLAIN, max_tokens=20, prompt_logprobs=1)
    answers = small.generate([PROMPT] * 4, params)
    assert small.engine.scheduler.num_preemptions > 0
    assert {a.prompt_logprobs.token_logprobs for a in answers if a.prompt_logprobs} == {score.token_logprobs}
    assert len({a.logits_sha256 for a in answers}) == 1


def test_no_token_at_all(llm: LLM) -> None:
    empty = only(llm, max_tokens=0)
    assert (empty.text, empty.token_ids, empty.finish_reason) == ("", (), "length")
    scored = llm.generate([PROMPT], replace(PLAIN, max_tokens=0, prompt_logprobs=2, n=2))
    assert [a.prompt_logprobs.token_logprobs for a in scored if a.prompt_logprobs] == 2 * [
        llm.score(PROMPT).token_logprobs
    ]
    whole = [5] * llm.engine.max_len
    full = llm.generate([whole], replace(PLAIN, max_tokens=0, prompt_logprobs=0))[0]
    assert full.prompt_logprobs is not None
    assert full.prompt_logprobs.token_logprobs == llm.score(whole).token_logprobs


def test_the_last_piece_of_a_stream_has_the_hash(llm: LLM) -> None:
    *before, last = llm.stream(PROMPT, PLAIN)
    assert last.logits_sha256 == only(llm).logits_sha256
    assert all(piece.logits_sha256 is None for piece in before)


def test_a_drawn_seed_fits_into_a_double(llm: LLM) -> None:
    seeds = [SamplingParams().with_seed().seed for _ in range(50)]
    assert all(seed is not None and seed == int(float(seed)) < 1 << 53 for seed in seeds)


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_tokens": 13},
        {"min_tokens": -1},
        {"max_tokens": -1},
        {"allowed_token_ids": ()},
        {"allowed_token_ids": (99999,)},
        {"stop_token_ids": (-1,)},
        {"bad_words": ("",)},
        {"prompt_logprobs": 129},
    ],
)
def test_wishes_that_cannot_be(llm: LLM, wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=next(iter(wrong))):
        only(llm, **wrong)
