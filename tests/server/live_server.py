"""A real server on a free port of the loopback interface, over a tiny model with random weights."""

from __future__ import annotations

import asyncio
import faulthandler
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from samebits import LLM
from samebits.engine.async_engine import AsyncEngine
from samebits.server.model import ServedModel
from samebits.server.run import make_server

NAME = "tiny"
STOP_SECONDS = 300  # more than answers in progress get, on a machine that has other work


@dataclass
class Running:
    """A server under test."""

    url: str
    served: ServedModel
    loop: asyncio.AbstractEventLoop
    llm_options: dict[str, Any] = field(default_factory=dict)

    @property
    def llm(self) -> LLM:
        return self.served.llm

    @property
    def engine(self) -> AsyncEngine:
        return self.served._own_engine

    def client(self, **options: Any) -> httpx.Client:
        return plain_client(base_url=self.url, timeout=60, **options)

    def check_idle(self, seconds: float = 10.0) -> None:
        """All pages are free within some seconds, and add up."""
        pages = self.llm.engine.scheduler.pages
        deadline = time.monotonic() + seconds
        while (pages.num_used or not self.llm.engine.is_idle) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert pages.num_used == 0
        self.llm.engine.scheduler.check_integrity()


def plain_client(**options: Any) -> httpx.Client:
    """A client of servers without TLS: reading the certificates that it would trust takes longer than most tests."""
    return httpx.Client(verify=False, **options)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(path: Path, llm_options: dict[str, Any] | None = None, **options: Any) -> Iterator[Running]:
    """Starts a server on its own thread, waits until it is healthy, and stops it at the end."""
    port = free_port()
    chosen = {"context_len": 512, "max_sequences": 32, **(llm_options or {})}
    server = make_server(lambda: LLM(path, **chosen), NAME, path, port=port, **options)
    host = options.get("host", "127.0.0.1")
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    url = f"http://{host}:{port}"
    try:
        deadline = time.monotonic() + 60
        with plain_client() as client:
            while True:
                try:
                    if client.get(f"{url}/health").status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                assert time.monotonic() < deadline, "the server does not become healthy"
                time.sleep(0.02)
        app: Any = server.config.app
        yield Running(url, app.state.served, server.servers[0].get_loop())
    finally:
        server.should_exit = True
        thread.join(STOP_SECONDS)
        if thread.is_alive():
            faulthandler.dump_traceback()  # says what every thread waits for
            raise AssertionError("the server does not stop")
