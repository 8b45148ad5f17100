"""A real Ray cluster of two replicas of a tiny model behind a real server, shared by the tests of this folder."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))
sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
sys.path.insert(0, str(Path(__file__).parents[1] / "server"))
# On a machine that has other tests to run, all of Ray may be slow: its controller would kill a proxy that misses three
# health checks in a row, with the answers that go through it. A proxy that has died is noticed all the same.
os.environ["RAY_raylet_start_wait_time_s"] = "1200"  # noqa: SIM112
os.environ["RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S"] = os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "600"

from live_server import NAME, Running, free_port, running
from random_tiny import write_random_tiny
from ray_cluster import HEALTHY_SECONDS, Cluster
from replica_processes import replica_processes
from test_server_process import process, wait_healthy

ENDED_SECONDS = 60.0
OPTIONS = {"context_len": 2048, "max_sequences": 32, "threads": 1}


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_tiny(tmp_path_factory.mktemp("models") / "random.gguf")


@pytest.fixture(scope="session")
def alone(model_path: Path) -> Iterator[Running]:
    """A plain server of the same model."""
    with running(model_path, OPTIONS) as it:
        yield it


@pytest.fixture(scope="module")
def cluster(model_path: Path) -> Iterator[Cluster]:
    """`samebits serve --replicas 2`, with a Ray cluster of its own, which must end with it."""
    pytest.importorskip("ray")
    port = free_port()
    flags = ["--model", str(model_path), "--served-name", NAME, "--port", str(port), "--replicas", "2"]
    flags += [text for name, value in OPTIONS.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    with process(*flags) as server:
        url = f"http://127.0.0.1:{port}"
        wait_healthy(url, server, HEALTHY_SECONDS)
        yield Cluster(url, server.pid)
        replicas = replica_processes(server.pid)
        server.terminate()
        _, told = server.communicate(timeout=120)
        assert server.returncode in (0, -signal.SIGTERM), told
        assert len(replicas) == 2
        deadline = time.monotonic() + ENDED_SECONDS
        while any(Path(f"/proc/{pid}").exists() for pid in replicas):
            assert time.monotonic() < deadline, "replicas outlive their server"
            time.sleep(0.1)
