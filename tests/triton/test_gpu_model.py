"""A whole model's step on the GPU backend, in Triton's interpreter: the reference's bits, padded to a bucket or not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_model import LIMITS, SHAPE, steps

from samebits.backends.discovery import get
from samebits.bench.random_checkpoint import RandomCheckpoint
from samebits.core.errors import BadInput
from samebits.engine.runner import Runner


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
