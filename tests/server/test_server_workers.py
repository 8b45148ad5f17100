"""The two threads that work off the event loop is done on: what is large waits for them, and what is small does not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from live_server import Running

from samebits.server.http.threads import INLINE_CHARS, NUM_WORKERS, on_worker

MESSAGES = [{"role": "user", "content": "hi"}]
SMALL = [
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 2}),
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 2, "stream": True}),
    ("/v1/completions", {"prompt": "hi", "max_tokens": 2}),
    ("/v1/embeddings", {"input": "hi"}),
    ("/v1/messages", {"messages": MESSAGES, "max_tokens": 2, "model": "tiny"}),
    ("/v1/responses", {"input": "hi", "max_output_tokens": 2}),
    ("/api/chat", {"messages": MESSAGES, "stream": False, "options": {"num_predict": 2}}),
    ("/tokenize", {"text": "hi"}),
]


@pytest.fixture
def busy_workers(server: Running) -> Iterator[None]:
    """All of them wait, as they work on large requests, until the test is over."""
    are_free, started = threading.Event(), threading.Barrier(NUM_WORKERS + 1)

    def wait() -> None:
        started.wait(60)
        are_free.wait(60)

    works = [asyncio.run_coroutine_threadsafe(on_worker(wait), server.loop) for _ in range(NUM_WORKERS)]
    started.wait(60)
    yield
    are_free.set()
    for work in works:
        work.result(60)


@pytest.mark.parametrize(("path", "body"), SMALL)
def test_a_small_request_waits_for_no_large_one(server: Running, busy_workers: None, path: str, body: Any) -> None:
    with server.client() as client:
        reply = client.post(path, json=body, timeout=20)
    assert reply.status_code == 200, reply.text


def test_large_requests_wait_for_a_thread(server: Running, busy_workers: None) -> None:
    with server.client() as client, pytest.raises(Exception, match="timed out"):
        client.post("/tokenize", json={"text": "x" * (INLINE_CHARS + 1)}, timeout=0.5)
