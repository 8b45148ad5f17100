"""Generation on a tiny model: determinism, chunks, stops, samples, limits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from samebits import LLM, SamplingParams
from samebits.core.errors import BadInput, Unsupported
from samebits.engine.logprobs import log_probabilities

GREEDY = SamplingParams(max_tokens=12, temperature=0, hash_logits=True, ignore_eos=True, seed=0)
PROMPT = "hello hi aaaa, what is this?"


def test_the_same_request_gives_the_same_bits(tiny: LLM) -> None:
    first, second = tiny.generate([PROMPT, PROMPT], GREEDY)
    assert first == second
    assert len(first.token_ids) == 12
    assert first.finish_reason == "length"


@pytest.mark.parametrize("max_batch_tokens", [1, 3, 16, 17])
def test_chunks_of_the_prompt_change_no_bit(tiny: LLM, tiny_path: Path, max_batch_tokens: int) -> None:
    chunked = LLM(tiny_path, max_batch_tokens=max_batch_tokens)
    assert chunked.generate([PROMPT], GREEDY) == tiny.generate([PROMPT], GREEDY)
    assert chunked.score(PROMPT).logits_sha256 == tiny.score(PROMPT).logits_sha256


@pytest.mark.parametrize("page_size", [1, 8, 32])
def test_page_size_changes_no_bit(tiny: LLM, tiny_path: Path, page_size: int) -> None:
    assert LLM(tiny_path, page_size=page_size).score(PROMPT).logits_sha256 == tiny.score(PROMPT).logits_sha256


def test_decoding_token_by_token_gives_the_logits_of_the_whole_text(tiny: LLM, tiny_path: Path) -> None:
    ids = tiny.tokenizer.encode(PROMPT)
    one_by_one = LLM(tiny_path, prefill_budget=1).score(ids, logits=True).logits
    assert one_by_one.tobytes() == tiny.score(ids, logits=True).logits.tobytes()


def test_seeds_and_samples(tiny: LLM) -> None:
    params = SamplingParams(max_tokens=8, temperature=1.0, n=3, seed=7, ignore_eos=True)
    answers = tiny.generate([PROMPT], params)
    assert len({a.token_ids for a in answers}) == 3
    assert answers == tiny.generate([PROMPT], params)
    unseeded = tiny.generate([PROMPT], SamplingParams(max_tokens=4, ignore_eos=True))[0]
    repeated = tiny.generate([PROMPT], SamplingParams(max_tokens=4, ignore_eos=True, seed=unseeded.seed))[0]
    assert repeated.token_ids == unseeded.token_ids


def test_stream_is_the_answer_in_pieces(tiny: LLM) -> None:
    assert "".join(p.text for p in tiny.stream(PROMPT, GREEDY)) == tiny.generate([PROMPT], GREEDY)[0].text


def test_stop_string_cuts_the_text_and_is_not_part_of_it(tiny: LLM) -> None:
    text = tiny.generate([PROMPT], GREEDY)[0].text
    stop = text[3:5]
    cut = tiny.generate([PROMPT], SamplingParams(max_tokens=12, temperature=0, ignore_eos=True, stop=(stop,)))[0]
    assert cut.text == text[: text.find(stop)]
    assert cut.finish_reason == "stop"


def test_logprobs_are_those_of_the_logits(tiny: LLM) -> None:
    params = SamplingParams(max_tokens=3, temperature=0, logprobs=2, ignore_eos=True)
    answer = tiny.generate([PROMPT], params)[0]
    first = answer.logprobs[0]
    logits = tiny.score(PROMPT, logits=True).logits[-1].astype(np.float64)
    want = logits - (np.log(np.exp(logits - logits.max()).sum()) + logits.max())
    assert first.top_logprobs[0][0] == first.token_id
    assert abs(first.logprob - want[first.token_id]) < 1e-5


def test_bias_and_penalties_reach_the_choice(tiny: LLM) -> None:
    banned = tiny.generate([PROMPT], GREEDY)[0].token_ids[0]
    other = SamplingParams(max_tokens=1, temperature=0, logit_bias={banned: -1e4}, ignore_eos=True)
    assert tiny.generate([PROMPT], other)[0].token_ids[0] != banned


def test_score_sums_and_perplexity(tiny: LLM) -> None:
    result = tiny.score(PROMPT, top_k=2, logits=True)
    rows = log_probabilities(result.logits)
    picked = [float(rows[i, t]) for i, t in enumerate(result.token_ids[1:])]
    assert list(result.token_logprobs) == picked
    assert abs(result.perplexity - np.exp(-np.mean(picked))) < 1e-9 * result.perplexity
    assert tiny.score([5]).perplexity is None


def test_context_ends_the_answer(tiny_path: Path) -> None:
    short = LLM(tiny_path, context_len=20)
    answer = short.generate([[5] * 15], SamplingParams(max_tokens=100, temperature=0, ignore_eos=True))[0]
    assert answer.finish_reason == "length"
    assert len(answer.token_ids) == 5


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda llm: llm.generate([[]]), "prompt is no tokens, but must be at least one"),
        (lambda llm: llm.generate([[10**6]]), "token id is 1000000, but must be from 0 "),
        (lambda llm: llm.generate([[1] * 500]), "prompt has 500 tokens, but must have fewer than 128"),
        (lambda llm: llm.score([]), "tokens is missing: it must be at least one"),
        (lambda llm: SamplingParams(temperature=-1), "temperature is -1, but must be from 0 to 1e+06"),
        (lambda llm: SamplingParams(n=0), "n is 0"),
        (lambda llm: SamplingParams(stop=("",)), "stop is an empty text"),
        (lambda llm: SamplingParams(seed=-1), "seed is -1"),
    ],
)
def test_mistakes_are_one_line(tiny: LLM, ask: object, message: str) -> None:
    with pytest.raises(BadInput) as error:
        ask(tiny)  # type: ignore[operator]
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_tier_that_cannot_be_kept_is_refused_by_name(tiny_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"null cannot give portable: node \d+, .*append.*claims only none"):
        LLM(tiny_path, backend="null", numerics="portable")
