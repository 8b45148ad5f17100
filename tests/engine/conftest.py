"""A tiny model with a tokenizer and a template, and the real default model where it can be had."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from samebits import LLM
from samebits.core.errors import SamebitsError
from samebits.loaders.cache import DEFAULT_MODEL
from samebits.loaders.pull import pull

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from gguf_writer import tiny_model

    return tiny_model().write(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> LLM:
    return LLM(tiny_path)


@pytest.fixture(scope="session")
def smollm2() -> LLM:
    try:
        path = pull(DEFAULT_MODEL, lambda *_: None)
    except SamebitsError as error:
        pytest.skip(f"the default model cannot be fetched here: {error}")
    return LLM(path, context_len=512)
