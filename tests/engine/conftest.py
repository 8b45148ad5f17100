"""A tiny model with a tokenizer and a template, and the real default model where it can be had."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from random_tiny import write_random_tiny
from scenes import Lab
from tiny_hybrid import open_hybrid

from samebits import LLM
from samebits.backends.discovery import default_name, get
from samebits.core.errors import SamebitsError
from samebits.loaders.catalog import DEFAULT_MODEL
from samebits.loaders.pull import pull
from samebits.models.parts import Limits

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


@pytest.fixture(scope="session")
def random_tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_tiny(tmp_path_factory.mktemp("models") / "random.gguf")


@pytest.fixture(scope="session")
def lab(random_tiny: Path) -> Lab:
    return Lab(random_tiny, get(default_name()))


@pytest.fixture(scope="session")
def hybrid(random_tiny: Path) -> Lab:
    return Lab(open_hybrid(random_tiny), get(default_name()), Limits(600, 16, 128, max_positions=200))


@pytest.fixture(scope="session", params=["pages", "slots"])
def any_lab(request: pytest.FixtureRequest, lab: Lab, hybrid: Lab) -> Lab:
    return lab if request.param == "pages" else hybrid
