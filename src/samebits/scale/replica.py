"""One replica: an engine in a process of its own, which Ray Serve starts, watches and replaces."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from ray import serve

from samebits.api.llm import LLM
from samebits.api.texts import FileTexts
from samebits.core.errors import SamebitsError, Unavailable
from samebits.scale.router import EDITION
from samebits.scale.settings import Settings
from samebits.server.logs import log_to_stderr
from samebits.server.metrics import Metrics
from samebits.server.model import ServedModel
from samebits.server.relay.answerer import Answerer
from samebits.server.relay.ask import Ask, WrongEdition
from samebits.server.relay.model import About, edition_id, plan_id
from samebits.server.relay.wire import error_row


class Replica:
    """What Serve makes a deployment of. Requests come by calls, their pieces leave by the answerer's lines."""

    async def __init__(self, settings: Settings) -> None:  # type: ignore[misc]
        """Unavailable where the model cannot be loaded."""
        log_to_stderr(logging.WARNING)
        path = FileTexts(settings.llm["model"]).path
        self._served, self._metrics = ServedModel(settings.name, settings.limits, False), Metrics()
        await self._served.load(lambda: LLM(**settings.llm), path, self._metrics)
        if self._served.failure is not None:
            raise Unavailable(f"replica: {self._served.failure}")
        plan = plan_id(path, settings.llm)
        self._answerer = Answerer(self._served, plan, edition_id(plan, self._served.own))

    def record_replica_metadata(self) -> dict[str, Any]:
        """What routers know of it."""
        return {EDITION: self._answerer.edition}

    def check_health(self) -> None:
        """Raises where requests cannot be answered any more; Serve replaces the replica then."""
        if self._served.state != "ready":
            raise SamebitsError(self._served.reason)

    async def answer(self, ask: Ask) -> None:
        """Returns when the request has ended; its pieces go where the ask says."""
        await self._answerer.answer(ask)

    async def embed(
        self, tokens: list[int], pooling: str, plan: str, seconds_left: float | None
    ) -> np.ndarray | list[Any]:
        """Return a text's vector, or the row of a refusal: raised through Ray it would pass for a lost replica.

        Raise only if the engine has died, which is a lost replica.
        """
        engine = self._served.engine
        deadline = None if seconds_left is None else engine.clock() + seconds_left
        try:
            self._check_plan(plan)
            return await engine.embed(tokens, pooling, deadline=deadline)
        except SamebitsError as error:
            if not engine.is_alive:
                raise
            return error_row(error)

    async def about(self, plan: str) -> About:
        self._check_plan(plan)
        served = self._served
        edition = self._answerer.edition
        return About(served.fingerprint, served.tier, served.llm.max_len, served.num_slots, edition)

    async def state(self) -> dict[str, Any]:
        """What the page draws."""
        steps = {"num_steps": self._metrics.num_steps, "steps": list(self._metrics.last_steps)}
        return {**await self._served.seen(), **steps}

    async def metrics(self) -> tuple[str, bytes]:
        """The replica's name, and its metrics."""
        name = serve.get_replica_context().replica_id.unique_id
        return name, await self._served.metrics_text(self._metrics)

    def _check_plan(self, plan: str) -> None:
        if plan != self._answerer.plan:
            raise WrongEdition(f"{plan} is asked for, and this is {self._answerer.plan}")

    def __del__(self) -> None:
        if hasattr(self, "_answerer"):
            self._answerer.close()
            self._served.close()
