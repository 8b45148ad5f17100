"""Every route with a client that fails, one that leaves and one that never reads: nothing of a request stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from live_server import Running, running
from raw_client import open_socket, read_to_end

from samebits.engine.job import RequestFailed
from samebits.loaders import chat
from samebits.server.app import ROUTES
from samebits.server.limits import Limits
from samebits.server.protocols import rerank
from samebits.server.routes import completions
from samebits.server.turns import turn

MESSAGES = [{"role": "user", "content": "hello hi"}]
LONG = {"max_tokens": 400, "ignore_eos": True}
FORMAT = {"response_format": {"type": "json_object"}}
# One request for each POST route that uses the engine: it runs until it is ended.
ASKS: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [{"messages": MESSAGES, "n": 3, **LONG}, {"messages": MESSAGES, **FORMAT, **LONG}],
    "/v1/completions": [{"prompt": ["hello", "hi", "a"], "n": 2, **LONG}, {"prompt": "hi", **FORMAT, **LONG}],
    "/v1/responses": [{"input": "hello hi", "max_output_tokens": 400}],
    "/v1/messages": [{"messages": MESSAGES, "max_tokens": 400}],
    "/v1/rerank": [{"query": "what?", "documents": ["it rains", "the sky is blue"]}],
    "/api/chat": [{"messages": MESSAGES, "options": {"num_predict": 400, "ignore_eos": True}}],
    "/api/generate": [{"prompt": "hello hi", "options": {"num_predict": 400, "ignore_eos": True}}],
    "/v1/embeddings": [{"input": [[5] * 300] * 10}],
}
NO_ENGINE = {  # what these routes are asked; they compute nothing
    "/api/show": {"model": "tiny-rerank"},
    "/tokenize": {"text": "hello hi " * 1000},
    "/detokenize": {"tokens": [5] * 1000},
}
STREAMS = {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/api/chat", "/api/generate"}
CASES = [
    pytest.param(path, {**body, **stream}, id=f"{path} {number} {'stream' if stream.get('stream') else 'whole'}")
    for path, bodies in ASKS.items()
    for number, body in enumerate(bodies)
    for stream in ([{"stream": False}, {"stream": True}] if path in STREAMS else [{}])
]
SETTLE_SECONDS = 20.0


@pytest.fixture(scope="module")
def walked(model_path: Path) -> Iterator[Running]:
    limits = Limits(stall_seconds=0.5)
    with running(model_path, {"context_len": 2048}, limits=limits) as it, pytest.MonkeyPatch.context() as patch:
        patch.setattr(it.served, "name", "tiny-rerank")
        patch.setattr(rerank, "VERDICTS", ("y", "n"))
        yield it


class Leavings:
    """What a server has under way beyond what an idle one has."""

    def __init__(self, server: Running) -> None:
        self._server, self._loop = server, server.loop
        self._idle_tasks = self._tasks()

    def _tasks(self) -> set[asyncio.Task[Any]]:
        """Return the tasks of the server's loop, seen from the loop itself."""

        async def look() -> set[asyncio.Task[Any]]:
            return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

        return asyncio.run_coroutine_threadsafe(look(), self._loop).result(60)

    def found(self) -> list[str]:
        """Return what is under way now."""
        engine, grammars = self._server.llm.engine, self._server.served.grammars
        found = [f"task {task.get_coro()!r}" for task in self._tasks() - self._idle_tasks]
        found += [f"job {job!r}" for job in dict.fromkeys(engine._jobs.values())]
        found += [f"{engine.scheduler.pages.num_used} pages"] * bool(engine.scheduler.pages.num_used)
        found += [f"format {f!r}" for f in list(grammars._followed) if not f.is_ended]
        found += [f"{grammars.num_compiling} formats to compile"] * bool(grammars.num_compiling)
        return found + [f"stream {s!r}" for s in self._server.engine._streams]

    def check(self) -> None:
        """Fail with what is left, if anything still is after a while."""
        until = time.monotonic() + SETTLE_SECONDS
        while (found := self.found()) and time.monotonic() < until:
            time.sleep(0.02)
        assert not found
        self._server.llm.engine.scheduler.check_integrity()


@contextlib.contextmanager
def held(server: Running, num_steps: int = 0) -> Iterator[None]:
    """Let the engine compute this many steps and then none: requests end only when they are ended."""
    scheduler = server.llm.engine.scheduler
    plan, left = scheduler.plan, num_steps

    def held_plan(*given: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            time.sleep(0.001)  # the engine's thread asks at once again
            return None
        return plan(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "plan", held_plan)
        yield


def sent(server: Running, path: str, body: dict[str, Any], receive_bytes: int | None = None) -> socket.socket:
    """Return a connection over which the request was sent and nothing was read."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    sock = open_socket(server.url, receive_bytes=receive_bytes)
    sock.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data)
    return sock


def await_jobs(server: Running) -> None:
    """Wait until the engine has a job."""
    until = time.monotonic() + SETTLE_SECONDS
    while server.llm.engine.is_idle:
        assert time.monotonic() < until
        time.sleep(0.005)


def test_every_route_is_walked() -> None:
    assert {path for method, path, _ in ROUTES if method == "POST"} == {*ASKS, *NO_ENGINE}


@pytest.mark.parametrize(("path", "body"), CASES)
@pytest.mark.parametrize("num_steps", [0, 3])
def test_a_client_that_leaves(walked: Running, path: str, body: dict[str, Any], num_steps: int) -> None:
    leavings = Leavings(walked)
    with held(walked, num_steps):
        with closing(sent(walked, path, body)):
            await_jobs(walked)
        leavings.check()


@pytest.mark.parametrize(("path", "body"), CASES)
def test_a_client_that_leaves_at_once(walked: Running, path: str, body: dict[str, Any]) -> None:
    leavings = Leavings(walked)
    with held(walked):
        sent(walked, path, body).close()
        with walked.client() as client:  # served behind it
            client.get("/health")
        leavings.check()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": MESSAGES}),
        ("/v1/responses", {"input": "hello hi"}),
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 4}),
        ("/v1/rerank", ASKS["/v1/rerank"][0]),
        ("/api/chat", {"messages": MESSAGES}),
        ("/api/generate", {"prompt": "hello hi"}),
    ],
)
def test_a_client_that_leaves_before_its_prompt_is_made(walked: Running, path: str, body: dict[str, Any]) -> None:
    """The template's process is busy with other conversations for longer than any client stays."""
    leavings = Leavings(walked)
    with chat._WORKER._lock:
        for _ in range(3):
            with closing(sent(walked, path, body)):
                until = time.monotonic() + SETTLE_SECONDS
                while len(leavings.found()) == 0:
                    assert time.monotonic() < until
                    time.sleep(0.005)
        leavings.check()


@pytest.mark.parametrize(("path", "body"), CASES)
def test_a_request_that_fails_in_the_engine(walked: Running, path: str, body: dict[str, Any]) -> None:
    """One of the request's jobs fails while the others would run on."""
    leavings = Leavings(walked)
    with held(walked), closing(sent(walked, path, body)) as sock:
        await_jobs(walked)
        walked.engine._inbox.put(lambda engine: engine._fail(next(iter(engine._jobs.values())), "planted"))
        reply = read_to_end(sock)
        assert b"the request failed" in reply
        leavings.check()


@pytest.mark.parametrize(("path", "body"), [case for case in CASES if case.values[0] != "/v1/embeddings"])
def test_a_request_that_the_server_itself_fails(
    walked: Running, path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something of ours raises as soon as a request's streams have been started."""

    def fail(*given: Any) -> Any:
        raise RequestFailed("planted")

    for module, name in ((completions, "shapes_of"), (turn, "call_ids"), (rerank, "all_completions")):
        monkeypatch.setattr(module, name, fail)
    leavings = Leavings(walked)
    with held(walked), walked.client() as client:
        assert client.post(path, json=body).status_code == 500
        leavings.check()


@pytest.mark.parametrize(("path", "body"), CASES)
def test_a_client_that_never_reads(walked: Running, path: str, body: dict[str, Any]) -> None:
    """Some answers fit into the buffers between the two, others never leave: all requests end."""
    leavings = Leavings(walked)
    with closing(sent(walked, path, body, receive_bytes=4096)):
        leavings.check()


@pytest.mark.parametrize("path", NO_ENGINE)
def test_routes_without_an_engine(walked: Running, path: str) -> None:
    leavings = Leavings(walked)
    sent(walked, path, NO_ENGINE[path]).close()
    with closing(sent(walked, path, NO_ENGINE[path], receive_bytes=4096)):
        leavings.check()


@pytest.mark.parametrize("path", [path for method, path, _ in ROUTES if method == "GET"])
def test_routes_that_show_something(walked: Running, path: str) -> None:
    leavings = Leavings(walked)
    target = path.replace("{name:path}", "tiny").replace("{name}", "main.js").replace("{id}", "x")
    for is_read in (False, True):
        with closing(open_socket(walked.url, receive_bytes=4096)) as sock:
            sock.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            if is_read:
                read_to_end(sock)
    leavings.check()
