"""Steps that are captured as a graph, which needs a GPU."""

from __future__ import annotations

import pytest
import torch
from small_model import LIMITS, SHAPE, steps

from samebits.backends.discovery import get
from samebits.backends.gpu.executable import GpuExecutable
from samebits.bench.random_checkpoint import RandomCheckpoint
from samebits.engine.runner import Runner


def decodes(runner: Runner) -> list[bytes]:
    """Logits of one step three times: launched, captured, replayed."""
    results = []
    for _ in range(3):
        result = runner.run(steps()[1])
        result.wait()
        results.append(result.logits.tobytes())
    return results


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_steps_are_captured_anew_after_memory_was_bound() -> None:
    runner = Runner(RandomCheckpoint(SHAPE, "f16"), get("cuda"), LIMITS, "portable")
    runner.run(steps()[0]).wait()
    before, executable = decodes(runner), runner._executable
    assert isinstance(executable, GpuExecutable)
    name, buffer = next(iter(executable._bound.items()))
    executable.bind(name, buffer)
    assert {*before} == {*decodes(runner)}
    assert len({*before}) == 1
