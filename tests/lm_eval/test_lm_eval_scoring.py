"""What lm-eval's model computes, without lm-eval: the same in batches of every size, and what `LLM.score` says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from samebits import LLM, SamplingParams
from samebits.lm_eval.scoring import Batches, continuation

sys.path[:0] = [str(Path(__file__).parents[1] / "engine"), str(Path(__file__).parents[1] / "loaders")]
TEXTS = [list(range(3, 3 + n)) for n in (2, 9, 30, 5, 17, 4, 8, 12, 3)]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    from random_tiny import write_random_tiny

    return LLM(write_random_tiny(tmp_path_factory.mktemp("lm_eval") / "random.gguf"), context_len=128)


def test_no_batch_changes_a_bit(llm: LLM) -> None:
    params = [SamplingParams(max_tokens=6, seed=i, temperature=0.8, hash_logits=True) for i in range(len(TEXTS))]
    found = []
    for size in (1, 4, 8):
        batches = Batches(llm, size)
        scores = [(score.token_logprobs, score.logits_sha256) for score in batches.scores(TEXTS)]
        scored = batches.sha256
        answers = [answer.token_ids for answer in batches.completions(TEXTS, params)]
        assert batches.sha256 != scored
        found.append((scores, scored, answers, batches.sha256))
    assert found[0] == found[1] == found[2]
    assert found[0][0] == [(s.token_logprobs, s.logits_sha256) for s in map(llm.score, TEXTS)]


def test_a_continuation_is_greedy_where_each_of_its_tokens_is_a_likeliest_one(llm: LLM) -> None:
    (greedy,) = llm.generate([TEXTS[1]], SamplingParams(max_tokens=5, temperature=0, ignore_eos=True))
    whole = [*TEXTS[1], *greedy.token_ids]
    (score,) = Batches(llm, 1).scores([whole])
    value, is_greedy = continuation(score, len(TEXTS[1]))
    assert (value, is_greedy) == (sum(score.token_logprobs[-5:]), True)
    other = [*whole[:-1], (whole[-1] + 1) % llm.tokenizer.num_ids]
    (score,) = Batches(llm, 1).scores([other])
    assert not continuation(score, len(TEXTS[1]))[1]
    assert continuation(score, len(whole) - 1)[0] == score.token_logprobs[-1]
