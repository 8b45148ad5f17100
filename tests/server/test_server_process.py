"""`samebits serve` as a process: its start, its mistakes, and its end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from live_server import free_port, running

COMMAND = [sys.executable, "-c", "from samebits.cli.main import main; main()", "serve"]


@contextmanager
def process(*options: str) -> Iterator[subprocess.Popen[str]]:
    server = subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield server
    finally:
        server.kill()
        server.communicate()


def wait_healthy(url: str, seconds: float = 60.0) -> set[int]:
    """Statuses that /health gave until it was healthy."""
    seen: set[int] = set()
    deadline = time.monotonic() + seconds
    while 200 not in seen:
        assert time.monotonic() < deadline, f"never healthy: {seen}"
        try:
            reply = httpx.get(f"{url}/health")
            seen.add(reply.status_code)
            assert reply.status_code == 200 or reply.json()["reason"] == "the model is loading"
        except httpx.TransportError:
            time.sleep(0.01)
    return seen


def test_a_signal_lets_answers_end(model_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with process("--model", str(model_path), "--port", str(port), "--context-len", "2000") as server:
        wait_healthy(url)
        wishes = {"prompt": "hello", "max_tokens": 300, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=wishes, timeout=60) as reply:
            lines = reply.iter_lines()
            next(lines)
            server.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2][6:])["choices"][0]["finish_reason"] == "length"
        assert server.wait(30) == 0
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/health")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--host", "0.0.0.0"), "serve: --api-key: got none; needs one, to listen on 0.0.0.0"),
        (("--deterministic", "--numerics", "fast"), "serve: --numerics: got fast"),
        (("--model", "no-such-model"), "no-such-model"),
    ],
)
def test_mistakes_in_the_call_are_one_line(options: tuple[str, ...], message: str) -> None:
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken(model_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = ["--model", str(model_path), "--port", str(taken.getsockname()[1])]
        done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "cannot listen on 127.0.0.1" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dead_engine_is_said_by_health(model_path: Path) -> None:
    with running(model_path) as server, server.client() as client:
        server.llm.engine.scheduler.plan = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        replies = []
        asking = threading.Thread(target=lambda: replies.append(client.post("/v1/completions", json={"prompt": "x"})))
        asking.start()
        asking.join(30)
        assert replies[0].status_code in (500, 503)
        health = client.get("/health")
        assert health.status_code == 503
        assert "ZeroDivisionError" in health.json()["reason"]
