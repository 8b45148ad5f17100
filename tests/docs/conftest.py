"""A cache in which a tiny model stands in for the default one, and a server of it: pages run as they are, anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))
sys.path.insert(0, str(Path(__file__).parents[1] / "server"))

from live_server import free_port, plain_client
from pages import SAMEBITS, SERVE
from random_tiny import write_random_tiny

from samebits.loaders.catalog import DEFAULT_MODEL, MODELS, PackagedModel
from samebits.loaders.integrity import note_checked

START_SECONDS = 120


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for SAMEBITS_CACHE in which the default model is a file of two tiny layers."""
    packaged = MODELS[DEFAULT_MODEL]
    assert isinstance(packaged, PackagedModel)
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("model_cache")
        patch.setenv("SAMEBITS_CACHE", str(folder))
        path = write_random_tiny(folder / packaged.file_name)
        note_checked(path, packaged.sha256, path.stat())
    return folder


@pytest.fixture(scope="session")
def server_url(model_cache: Path) -> Iterator[str]:
    """The address of a server that was started as the page says, on a free port."""
    port = free_port()
    command = [*SAMEBITS, *SERVE, "--port", str(port)]
    environment = {**os.environ, "SAMEBITS_CACHE": str(model_cache)}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS
    try:
        with plain_client() as client:
            while not is_healthy(client, url):
                assert server.poll() is None, "the server has ended"
                assert time.monotonic() < deadline, "the server does not become healthy"
                time.sleep(0.02)
        yield url
    finally:
        server.terminate()
        server.wait(60)


def is_healthy(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False
