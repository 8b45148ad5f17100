"""Starting a server: it answers at once, and the model loads behind it."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn
from starlette.applications import Starlette

from samebits.api.llm import LLM
from samebits.core.errors import BadInput
from samebits.server.app import build_app
from samebits.server.http.guard import ACCEPT_BACKLOG, Guard
from samebits.server.http.security import Door
from samebits.server.limits import KEEP_ALIVE_SECONDS, Limits
from samebits.server.metrics import Metrics
from samebits.server.model import ServedModel
from samebits.server.receipts import ReceiptDesk
from samebits.server.stopping import StoppingServer
from samebits.server.turns.model_forms import FormChoice

if TYPE_CHECKING:  # an extra
    from samebits.server.kv_events.publisher import KvEventPublisher

log = logging.getLogger("samebits.server")
SWITCH_SECONDS = 0.0005  # a thread that works keeps the event loop waiting so long each time the loop comes back to it


def check_host(door: Door) -> None:
    """BadInput for an address that others can reach, without a key."""
    try:
        is_local = ipaddress.ip_address(door.host).is_loopback
    except ValueError:
        is_local = door.host == "localhost"
    if not is_local and door.api_key is None:
        raise BadInput("serve", "--api-key", "none", f"a key, to listen on {door.host}")


def make_server(
    make_llm: Callable[[], LLM],
    name: str,
    path: Path | None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    door: Door | None = None,
    limits: Limits | None = None,
    is_deterministic: bool = False,
    form_choice: FormChoice | None = None,
    desk: ReceiptDesk | None = None,
    publisher: KvEventPublisher | None = None,
    on_settled: Callable[[ServedModel], None] = ServedModel.log_settled,
    on_stopping: Callable[[str], None] = log.warning,
) -> uvicorn.Server:
    """A server of a model that runs in this process; loading begins when it starts, `on_settled` is called after it.

    publisher     tells routers what the pages hold; it is closed with the model
    on_stopping   gets a line about the answers that the server waits for when it stops
    """
    served = ServedModel(name, limits or Limits(), is_deterministic, form_choice, desk, publisher)

    def load(metrics: Metrics) -> Coroutine[Any, Any, None]:
        if publisher is not None:
            publisher.on_drop = metrics.dropped_kv_events.inc
        return served.load(make_llm, path, metrics)

    return http_server(served, load, host=host, port=port, door=door, on_settled=on_settled, on_stopping=on_stopping)


def http_server(
    served: ServedModel,
    load: Callable[[Metrics], Coroutine[Any, Any, None]],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    door: Door | None = None,
    on_settled: Callable[[ServedModel], None] = ServedModel.log_settled,
    on_stopping: Callable[[str], None] = log.warning,
) -> uvicorn.Server:
    """A server that is ready to run, over a model that `load` loads once it has started."""
    door, limits, metrics = replace(door or Door(), host=host), served.limits, Metrics()
    check_host(door)
    guard = Guard(limits, metrics)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        sys.setswitchinterval(SWITCH_SECONDS)
        async with anyio.create_task_group():  # imports much, for which every client would wait at the first stream
            pass
        loading = asyncio.create_task(load(metrics))
        loading.add_done_callback(lambda task: None if task.cancelled() else on_settled(served))
        watching = asyncio.create_task(guard.watch())
        try:
            yield
        finally:
            for task in (loading, watching):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await asyncio.to_thread(served.close)

    app = build_app(served, metrics, door, lifespan)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="asyncio",
        http=guard.protocol(),
        ws="none",
        backlog=ACCEPT_BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
    )
    return StoppingServer(config, limits.drain_seconds, on_stopping)
