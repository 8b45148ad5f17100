"""A llama of one layer, and two steps of it."""

from __future__ import annotations

import numpy as np

from samebits.bench.shapes import llama
from samebits.core.step import StepBatch
from samebits.models.parts import Limits

SHAPE = llama(1, 32, 32, 1, 1, 32, 64)
LIMITS = Limits(max_tokens=8, max_sequences=4, num_pages=8, page_size=16, max_positions=32)


def steps() -> list[StepBatch]:
    """Two prompts of two tokens and of one, then a token of the first: buckets of 4 and 1."""

    def batch(**arrays: list[int]) -> StepBatch:
        return StepBatch(**{name: np.array(values, np.int32) for name, values in arrays.items()})

    prompts = batch(
        token_ids=[5, 9, 31],
        positions=[0, 1, 0],
        batch_indices=[0, 0, 1],
        qo_indptr=[0, 2, 3],
        kv_indptr=[0, 1, 2],
        kv_indices=[4, 2],
        kv_last_page_len=[2, 1],
        slots=[0, 1],
        out_rows=[1, 2],
    )
    decode = batch(
        token_ids=[7],
        positions=[2],
        batch_indices=[0],
        qo_indptr=[0, 1],
        kv_indptr=[0, 1],
        kv_indices=[4],
        kv_last_page_len=[3],
        slots=[0],
        out_rows=[0],
    )
    return [prompts, decode]
