"""A smaller model guesses: an engine of its own, with its own pages, which draws with the noise of the larger one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from samebits.core.errors import BadInput
from samebits.engine.drafts.drafter import Wanted
from samebits.engine.job import Generation
from samebits.engine.request_options import RequestOptions
from samebits.engine.sampling import SamplingParams
from samebits.loaders import Tokenizer

if TYPE_CHECKING:  # an engine may have this drafter
    from samebits.engine.engine import Engine

PAGE_SIZE = 4  # small, since all but the last part of a page is found again in the next step
NOTHING = np.zeros(0, np.int32)


class ModelDrafter:
    """Draws what is wanted with another model, for all sequences at once.

    A draw's noise is a function of seed, sample and position, so where the two models find much the same tokens likely
    they draw the same one, at any temperature. What was computed for a sequence before is found in the pages.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def propose(self, wanted: Sequence[Wanted]) -> list[np.ndarray]:
        jobs: list[Generation | None] = []
        try:
            for want in wanted:
                most = min(want.most, self._engine.max_len - len(want.tokens))
                jobs.append(self._start(want, most) if most > 0 else None)
            self._engine.complete(*(job for job in jobs if job is not None))
        finally:
            for job in jobs:
                if job is not None:
                    self._engine.cancel(job)
        return [NOTHING if job is None else np.array(job.answers[0].token_ids, np.int32) for job in jobs]

    def _start(self, want: Wanted, most: int) -> Generation:
        given = want.params
        params = SamplingParams(
            max_tokens=most,
            temperature=given.temperature,
            top_k=given.top_k,
            top_p=given.top_p,
            min_p=given.min_p,
            seed=given.seed,
            n=given.n,
            ignore_eos=True,
        )
        return self._engine.generate(want.tokens.tolist(), params, RequestOptions(sample_indices=[want.sample_index]))

    def forget(self, key: Hashable) -> None:
        """Nothing is kept but pages, which others take when they need them."""


def check_vocabulary(ours: Tokenizer, drafts: Tokenizer, model: str) -> None:
    """BadInput unless both have the same tokens under the same ids."""
    if ours.vocab_size != drafts.vocab_size:
        needed = f"the {ours.vocab_size} tokens of the model it guesses for"
        raise BadInput("speculate", model, f"{drafts.vocab_size} tokens", needed)
    for token in range(ours.vocab_size):
        wanted, found = ours.decode_bytes([token]), drafts.decode_bytes([token])
        if wanted != found:
            raise BadInput("speculate", model, f"{found!r} as token {token}", f"{wanted!r}: the same vocabulary")
