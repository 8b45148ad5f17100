"""A tiny model with random weights, and receipts of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from samebits import LLM

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "engine"), str(TESTS / "loaders")]


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from random_tiny import write_random_tiny

    return write_random_tiny(tmp_path_factory.mktemp("receipts") / "random.gguf")


@pytest.fixture(scope="session")
def llm(model_path: Path) -> LLM:
    return LLM(model_path, context_len=512, max_batch_tokens=64)
