"""A tiny random model, and the folder of scripts on the path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture(scope="session")
def bench_model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama of one layer with room for 96 tokens."""
    from random_model import write_model

    from samebits.bench.shapes import llama

    return write_model(llama(1, 64, 96, 2, 1, 300, 96), "q8_0", tmp_path_factory.mktemp("models") / "tiny.gguf")
