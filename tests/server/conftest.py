"""A tiny model with random weights behind a real server, shared by the tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_server import Running, running

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))
sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))

from random_tiny import write_random_tiny

from samebits import LLM


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_tiny(tmp_path_factory.mktemp("models") / "random.gguf")


@pytest.fixture(scope="session")
def server(model_path: Path) -> Iterator[Running]:
    with running(model_path) as it:
        yield it


@pytest.fixture(scope="session")
def library(model_path: Path) -> LLM:
    """The same model without a server: an engine is for one thread, and a server's has its own."""
    return LLM(model_path, context_len=2048)


@pytest.fixture(scope="session")
def roomy(model_path: Path) -> Iterator[Running]:
    """The same with room for the description of tools."""
    with running(model_path, {"context_len": 2048}) as it:
        yield it
