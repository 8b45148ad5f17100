"""What one request of up to 4 MB may cost at most: CPU of all processes, memory, and time of the event loop."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from hostile_bodies import MAX_BYTES, ROWS, Row
from live_server import free_port, plain_client
from processes import Meter, cpu_seconds
from test_server_process import wait_healthy

from samebits.core.request_limits import GRAMMAR_SECONDS

MAX_CPU_SECONDS = 2 * GRAMMAR_SECONDS  # half for compiling a format, as on every machine; a slow machine needs the rest
MAX_MEMORY_BYTES, MAX_LAG_SECONDS = 300 << 20, 0.05
NUM_TRIES = 12  # other work on the machine may disturb most; what is ours is there in all
JSON = {"content-type": "application/json"}
SCRIPT = Path(__file__).with_name("watched_server.py")


@dataclass
class Watched:
    """A server in a process of its own, and a client."""

    process: subprocess.Popen[str]
    client: httpx.Client
    idle_bytes: int  # of memory, all processes together, before any row

    def longest_lag(self) -> float:
        """Of the event loop since the last call, in seconds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


@pytest.fixture(scope="module")
def watched(model_path: Path) -> Iterator[Watched]:
    port = free_port()
    command = [sys.executable, str(SCRIPT), str(model_path), str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_healthy(f"http://127.0.0.1:{port}", process)
            with plain_client(base_url=f"http://127.0.0.1:{port}", timeout=120, headers=JSON) as client:
                warm_up(client)
                yield Watched(process, client, Meter(process.pid).now())
        finally:
            process.kill()


def warm_up(client: httpx.Client) -> None:
    """What is done once shall not be counted: a template's and a grammar's first process."""
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 2,
        "response_format": {"type": "json_object"},
    }
    assert client.post("/v1/chat/completions", json=body).status_code == 200


@dataclass(frozen=True)
class Cost:
    cpu_seconds: float
    memory_bytes: int
    lag_seconds: float

    @property
    def is_bearable(self) -> bool:
        return (
            self.cpu_seconds < MAX_CPU_SECONDS
            and self.memory_bytes < MAX_MEMORY_BYTES
            and self.lag_seconds < MAX_LAG_SECONDS
        )


def cost_of(watched: Watched, row: Row, body: bytes) -> Cost:
    """Sends it, checks that the answer is one, and says what it took: memory beyond what earlier rows left behind."""
    pid = watched.process.pid
    watched.longest_lag()
    bytes_before = max(watched.idle_bytes, Meter(pid).now())
    with Meter(pid) as meter:
        before = cpu_seconds(pid)
        reply = watched.client.post(row.path, content=body)
        taken = cpu_seconds(pid) - before
    lag = watched.longest_lag()
    assert reply.status_code in (200, 400, 500, 503), reply.text[:200]
    if reply.status_code != 200:
        told = reply.json()["error"]
        message = told if isinstance(told, str) else told["message"]
        assert message.isprintable()
        assert len(message) < 400
        assert reply.status_code == 400 or any(name in message for name in ("response_format", "sample: "))
    return Cost(taken, meter.peak_bytes - bytes_before, lag)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_no_request_costs_more_than_it_may(watched: Watched, row: Row) -> None:
    body = row.make()
    assert len(body) <= MAX_BYTES
    costs = []
    for _ in range(NUM_TRIES):
        costs.append(cost_of(watched, row, body))
        if costs[-1].is_bearable:
            return
        time.sleep(0.2)
    pytest.fail(f"{row}: {costs}")
