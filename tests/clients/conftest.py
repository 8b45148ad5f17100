"""The default model behind a real server. Clients are unchanged: they are told an address and nothing else.

The model is small, so what is asserted are types and schemas, which the server's grammars keep, and never what it says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))
sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))

from live_server import Running, running

from samebits.core.errors import SamebitsError
from samebits.loaders.cache import resolve
from samebits.loaders.catalog import DEFAULT_MODEL

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # LiteLLM asks the network at import otherwise


@pytest.fixture(scope="session")
def server() -> Iterator[Running]:
    try:
        path = resolve(DEFAULT_MODEL)
    except SamebitsError:
        pytest.skip("needs the default model: samebits pull")
    with running(path, llm_options={"context_len": 8192, "max_sequences": 8}) as it:
        yield it
