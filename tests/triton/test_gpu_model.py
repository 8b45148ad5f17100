"""A whole model's step on the GPU backend, in Triton's interpreter: the reference's bits, padded to a bucket or not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from samebits.backends.discovery import get
from samebits.bench.random_checkpoint import RandomCheckpoint
from samebits.bench.shapes import llama
from samebits.core.errors import BadInput
from samebits.core.step import StepBatch
from samebits.engine.runner import Runner
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


def logits(backend: str, fmt: str) -> list[bytes]:
    runner = Runner(RandomCheckpoint(SHAPE, fmt), get(backend), LIMITS, "portable")
    assert runner.fallbacks == ()
    found = []
    for step in steps():
        result = runner.run(step)
        result.wait()
        found.append(result.logits.tobytes())
    return found


def test_steps_have_the_reference_bits() -> None:
    assert logits("cuda", "f16") == logits("reference", "f16")  # block weights are slow in the interpreter


def test_an_id_outside_the_table_is_refused_after_the_step() -> None:
    runner = Runner(RandomCheckpoint(SHAPE, "f16"), get("cuda"), LIMITS, "portable")
    first = {"token_ids": [32], "positions": [0], "kv_last_page_len": [1]}
    result = runner.run(replace(steps()[1], **{name: np.array(x, np.int32) for name, x in first.items()}))
    with pytest.raises(BadInput, match="embedding: ids"):
        result.wait()
