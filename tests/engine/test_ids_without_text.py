"""A model may have more ids than its tokenizer has tokens: they are drawn and given as any other, and have no text."""

from __future__ import annotations

import asyncio

import pytest
from random_tiny import write_random_tiny

from samebits import LLM, SamplingParams
from samebits.core.errors import BadInput
from samebits.engine.async_engine import AsyncEngine

NUM_EXTRA = 7
NEIGHBOUR = SamplingParams(max_tokens=12, temperature=0, seed=0, hash_logits=True, ignore_eos=True)


@pytest.fixture(scope="module")
def padded(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    path = write_random_tiny(tmp_path_factory.mktemp("models") / "padded.gguf", NUM_EXTRA)
    return LLM(path, context_len=128)


def drawing(first: int, second: int) -> SamplingParams:
    """Draws hardly anything but these two ids."""
    bias = {first: 1000.0, second: 999.5}
    return SamplingParams(max_tokens=9, seed=4, logit_bias=bias, logprobs=4, stop=("x", "ab"), n=3)


def test_they_are_drawn_and_have_no_text(padded: LLM) -> None:
    num_tokens = padded.tokenizer.vocab_size
    assert padded.runner.vocab_size == padded.tokenizer.num_ids == num_tokens + NUM_EXTRA
    alone = padded.generate(["hello"], NEIGHBOUR)
    last, letter = num_tokens + NUM_EXTRA - 1, padded.tokenizer.encode("q", add_special=False)[0]
    generate = padded.engine.generate
    jobs = [generate([5, num_tokens], drawing(last, letter)), generate([5], drawing(last, last - 1))]
    neighbour = generate(padded.tokenizer.encode("hello"), NEIGHBOUR)
    padded.engine.complete(*jobs, neighbour)
    assert neighbour.completions() == alone
    for answer in jobs[0].completions():
        assert answer.text == "q" * answer.token_ids.count(letter)
    assert [answer.text for answer in jobs[1].completions()] == ["", "", ""]
    assert {t for answer in jobs[1].completions() for t in answer.token_ids} == {last, last - 1}


def test_an_async_engine_survives_them(padded: LLM) -> None:
    async def scenario() -> None:
        engine = AsyncEngine(padded.engine)
        try:
            last = padded.runner.vocab_size - 1
            answers = await (await engine.generate([last], drawing(last, last - 1))).completions()
            assert [answer.text for answer in answers] == ["", "", ""]
            assert engine.is_alive
        finally:
            engine.close()

    asyncio.run(scenario())


def test_they_may_be_given_wherever_ids_may(padded: LLM) -> None:
    first, end = padded.tokenizer.vocab_size, padded.tokenizer.num_ids
    ids = [5, first, 6, end - 1]
    assert padded.tokenizer.decode(ids) == padded.tokenizer.decode([5, 6])
    assert padded.tokenizer.token_text(end - 1) == ""
    stream = padded.tokenizer.stream()
    assert "".join(stream.push(i) for i in ids) + stream.finish() == padded.tokenizer.decode([5, 6])
    assert len(padded.generate([ids], NEIGHBOUR)[0].token_ids) == 12
    assert len(padded.score(ids).token_logprobs) == 3
    assert padded.embed(ids).shape == (64,)


@pytest.mark.parametrize("wrong", [-1, 265 + NUM_EXTRA, 1 << 40])
def test_others_are_refused_everywhere_alike(padded: LLM, wrong: int) -> None:
    assert padded.runner.vocab_size == 265 + NUM_EXTRA
    for use in (padded.tokenizer.decode, padded.generate, padded.score, padded.embed, padded.tokenizer.stream().push):
        given = wrong if use.__name__ == "push" else [wrong]
        with pytest.raises(BadInput, match=f"token id is {wrong}, but must be from 0 "):
            use(given)  # type: ignore[operator]
