"""All replicas as a server sees them: asked through Ray Serve's handle, which routes every call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle

from samebits.core.errors import BadInput
from samebits.server.http.threads import on_own_thread
from samebits.server.relay.ask import Ask, Full, Lost
from samebits.server.relay.model import About
from samebits.server.relay.wire import error_of

STATE_SECONDS = 2.0  # for replicas to say how they are
PAUSE_SECONDS = 0.2


class RayReplicas:
    """Replicas behind a deployment's handle."""

    def __init__(self, start: Callable[[], DeploymentHandle], stop: Callable[[], None]) -> None:
        """start: gives the handle, and may take as long as loading takes; stop: is called once, at the end."""
        self._start, self._stop = start, stop
        self._handle: Any = None

    async def open(self) -> str:
        handle = await on_own_thread(self._start)  # may take hours; a stop does not wait for it
        self._handle = handle.options(_by_reference=False)  # by gRPC: half the time of calls through Ray's object store
        return str(ray.util.get_node_ip_address())

    async def about(self, plan: str) -> About:
        while True:
            try:
                return About(*await self._call(self._handle.about.remote(plan)))
            except Lost:  # of another plan, while replicas are being replaced
                await asyncio.sleep(PAUSE_SECONDS)

    async def answer(self, ask: Ask) -> None:
        await self._call(self._handle.answer.remote(ask))

    async def embed(self, tokens: list[int], pooling: str, plan: str, seconds_left: float | None) -> np.ndarray:
        found = await self._call(self._handle.embed.remote(tokens, pooling, plan, seconds_left))
        if isinstance(found, list):
            raise error_of(found)
        return np.asarray(found)

    async def states(self) -> list[dict[str, Any]]:
        return await self._each("state")

    async def metrics(self) -> dict[str, bytes]:
        return dict(await self._each("metrics"))

    def close(self) -> None:
        self._stop()

    async def _each(self, method: str) -> list[Any]:
        """What every replica says; nothing where one of them is not there to say it."""
        try:
            return list(await self._handle.broadcast(method).results_async(timeout_s=STATE_SECONDS))
        except (RayError, RayServeException, TimeoutError):
            return []

    async def _call(self, response: Any) -> Any:
        """A call's result; Lost for what another replica may answer, cancelled there when it is cancelled here."""
        try:
            return await response
        except asyncio.CancelledError:
            response.cancel()
            raise
        except (BadInput, Lost):
            raise
        except BackPressureError as error:
            raise Full(f"all replicas have as much as they can take: {error}") from None
        except (RayError, DeploymentUnavailableError) as error:
            raise Lost(f"a replica was lost: {type(error).__name__}") from None
