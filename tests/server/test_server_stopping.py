"""`samebits serve` stops at a signal: it says what it waits for, and ends without a traceback."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import free_port, plain_client
from raw_client import open_socket
from test_server_process import process

LONG: dict[str, Any] = {"prompt": "hello", "max_tokens": 1900, "ignore_eos": True, "n": 4}
UNREAD_BYTES = 4096  # of the system's buffer for a client that does not read its stream


@contextmanager
def started(model_path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a server that is ready, and yield its process and URL."""
    with process("--model", str(model_path), "--port", "0", "--context-len", "2000", *options) as server:
        assert server.stderr is not None
        assert "loading" in server.stderr.readline()
        assert server.stderr.readline().startswith("memory ")
        line = server.stderr.readline()
        assert " is ready at " in line
        yield server, line.partition(" at ")[2].partition(",")[0]


def request_bytes(body: bytes, num_declared: int | None = None) -> bytes:
    length = len(body) if num_declared is None else num_declared
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n"
    return head.encode() + body


def start_unfinished_requests(url: str, stack: ExitStack) -> None:
    """Start a request whose body is incomplete, one for a whole answer, and one for a stream that is not read.

    Return when the server has all three; `stack` closes their connections.
    """
    streamed = {**LONG, "stream": True, "logprobs": 20}
    sent = [
        request_bytes(b"{", 1000),
        request_bytes(json.dumps(LONG).encode()),
        request_bytes(json.dumps(streamed).encode()),
    ]
    sockets = [stack.enter_context(closing(open_socket(url, receive_bytes=UNREAD_BYTES))) for _ in sent]
    for sock, data in zip(sockets, sent, strict=True):
        sock.sendall(data)
    assert sockets[-1].recv(9) == b"HTTP/1.1 "
    with plain_client(base_url=url, timeout=60) as client:
        while client.get("/state").json()["num_running"] < 2 * LONG["n"]:
            pass


@pytest.mark.parametrize(
    ("signals", "options", "line"),
    [
        (
            (signal.SIGINT, signal.SIGINT),
            (),
            "stopping: 3 answers in progress, up to 30 s; press Ctrl-C again to stop now",
        ),
        ((signal.SIGTERM,), ("--drain-seconds", "1"), "stopping: 3 answers in progress, up to 1 s"),
        ((signal.SIGTERM, signal.SIGINT), (), "stopping: 3 answers in progress, up to 30 s"),
    ],
)
def test_answers_that_do_not_end_are_cut_without_a_traceback(
    model_path: Path, signals: tuple[signal.Signals, ...], options: tuple[str, ...], line: str
) -> None:
    with started(model_path, *options) as (server, url), ExitStack() as stack:
        start_unfinished_requests(url, stack)
        server.send_signal(signals[0])
        assert server.stderr is not None
        said = server.stderr.readline()
        for number in signals[1:]:
            server.send_signal(number)
        out, rest = server.communicate(timeout=60)
    assert [said, rest, out] == [f"{line}\n", "stopped: 3 answers were cut\n", ""]
    assert server.returncode == 0


def wait_answered(url: str) -> dict[str, Any]:
    """Return the JSON at an address, once there is a server that answers."""
    with plain_client(timeout=60) as client:
        while True:
            with suppress(httpx.TransportError):  # the address is taken already, and nobody reads yet
                return dict(client.get(url).json())


LOADING_FOR_EVER = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from samebits.cli import serve
from samebits.cli.main import main

def work():
    while True:
        time.sleep(0.01)

def make_llm(**_):
    with ThreadPoolExecutor() as pool:  # whose threads a process waits for, as those that lay weights out
        pool.submit(work).result()

serve.make_llm = make_llm
sys.argv = ["samebits", "serve", "--model", sys.argv[1], "--port", sys.argv[2]]
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_still_loads_stops_at_once(model_path: Path, number: signal.Signals) -> None:
    port = str(free_port())
    command = [sys.executable, "-c", LOADING_FOR_EVER, str(model_path), port]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            assert "loading" in server.stderr.readline()
            assert wait_answered(f"http://127.0.0.1:{port}/health")["status"] == "loading"
            server.send_signal(number)
            assert server.communicate(timeout=60) == ("", "")
        finally:
            server.kill()
    assert server.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_without_answers_stops_silently(model_path: Path, number: signal.Signals) -> None:
    with started(model_path) as (server, url), plain_client(base_url=url) as client:
        assert client.get("/health").status_code == 200
        server.send_signal(number)
        assert server.communicate(timeout=60) == ("", "")
    assert server.returncode == 0
