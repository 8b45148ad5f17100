"""A model that cannot be served: whatever stands in the way, /health says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import free_port

from samebits import LLM
from samebits.server.run import make_server

NO_ROOM = 1 << 46  # bytes of a thread's stack that no machine has


class Panic(BaseException):
    """As libraries raise it that are written in another language."""


def cannot_start_threads(path: Path) -> LLM:
    llm = LLM(path, context_len=64)
    threading.stack_size(NO_ROOM)
    return llm


def panics(path: Path) -> LLM:
    raise Panic("index out of bounds")


def has_no_tokenizer(path: Path) -> LLM:
    llm = LLM(path, context_len=64)
    del llm.tokenizer  # what is built on a model after its load fails
    return llm


@contextmanager
def loading(make: Callable[[], LLM]) -> Iterator[str]:
    """A server on its own thread; its address."""
    port = free_port()
    server = make_server(make, "tiny", None, port=port)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        threading.stack_size(0)
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


def settled_health(url: str, seconds: float = 60) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            health = httpx.get(f"{url}/health", verify=False).json()
            if health["status"] != "loading":
                return dict(health)
        except httpx.TransportError:  # not listening yet
            pass
        time.sleep(0.02)
    raise AssertionError("/health says loading for ever")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (cannot_start_threads, "RuntimeError: can't start new thread"),
        (panics, "Panic: index out of bounds"),
        (has_no_tokenizer, "AttributeError: 'LLM' object has no attribute 'tokenizer'"),
    ],
)
def test_every_failure_to_load_is_said(
    model_path: Path, make: Callable[[Path], LLM], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    said = f"the model cannot be loaded ({reason.partition(':')[0]}); the server's log says why"
    with loading(lambda: make(model_path)) as url:
        assert settled_health(url) == {"status": "failed", "reason": said}
        reply = httpx.post(f"{url}/v1/completions", json={"prompt": "a"}, verify=False)
        assert (reply.status_code, reply.json()["error"]["message"]) == (503, said)
    assert reason in caplog.text
