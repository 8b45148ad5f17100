"""Log-likelihoods and generations of an `LLM` in batches, with a hash over all the logits behind them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from samebits.api.llm import LLM
from samebits.engine.answer import Completion
from samebits.engine.sampling import SamplingParams
from samebits.engine.text_jobs import Score


class Batches:
    """Requests to a model, `batch_size` at once. What comes back is the same for every size, and so is `sha256`."""

    def __init__(self, llm: LLM, batch_size: int) -> None:
        self.llm, self.batch_size = llm, batch_size
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Over the logits of all requests so far, in the order in which they were made."""
        return self._digest.hexdigest()

    def scores(self, texts: Sequence[Sequence[int]]) -> Iterator[Score]:
        """Each text's, with the likeliest token of every position."""
        for start in range(0, len(texts), self.batch_size):
            jobs = [self.llm.engine.score(ids, top_k=1) for ids in texts[start : start + self.batch_size]]
            self.llm.engine.complete(*jobs)
            for job in jobs:
                score = job.score()
                self._digest.update(bytes.fromhex(score.logits_sha256))
                yield score

    def completions(self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]) -> Iterator[Completion]:
        """Each prompt's one answer; their parameters ask for the hash of the logits."""
        for start in range(0, len(prompts), self.batch_size):
            end = start + self.batch_size
            for answer in self.llm.generate(prompts[start:end], list(params[start:end])):
                self._digest.update(bytes.fromhex(answer.logits_sha256 or ""))
                yield answer


def continuation(score: Score, num_context: int) -> tuple[float, bool]:
    """(log-likelihood of the tokens behind the first `num_context` >= 1, whether each was a likeliest one).

    The sum is a plain one, from left to right, as lm-eval makes it of a server's answers: both ways give one number.
    """
    logprobs = score.token_logprobs[num_context - 1 :]
    likeliest = (top[0][1] for top in score.top[num_context - 1 :])
    return sum(logprobs), all(own == most for own, most in zip(logprobs, likeliest, strict=False))
