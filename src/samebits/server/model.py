"""The model behind a server: loading, then serving, until it is closed or has failed."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samebits import NUMERICS_VERSION, __version__
from samebits.api.llm import LLM
from samebits.api.texts import Texts
from samebits.core.tiers import Tier
from samebits.engine.async_engine import AsyncEngine
from samebits.engine.engine import Engine
from samebits.engine.faults import reason_of
from samebits.engine.observer import Observer
from samebits.engine.sizes import Division
from samebits.grammar.process import vocabulary_of
from samebits.server.engines import ServingEngine
from samebits.server.grammar.grammars import Grammars
from samebits.server.http.errors import ApiError, busy
from samebits.server.http.threads import on_own_thread
from samebits.server.limits import Limits
from samebits.server.metrics import Metrics
from samebits.server.receipts import ReceiptDesk
from samebits.server.turns.model_forms import FormChoice, ModelForms

if TYPE_CHECKING:  # an extra
    from samebits.server.kv_events.publisher import KvEventPublisher

LOADING, READY, FAILED, CLOSED = "loading", "ready", "failed", "closed"
log = logging.getLogger("samebits.server")
READ_BYTES = 1 << 20
SHOWN_SLOTS = 256


class ServedModel:
    """`name` is what clients call it. Everything but `state` and `reason` is there once the state is ready.

    `reason` is for clients: it names no file, whatever went wrong. The log has the whole of it.
    """

    llm: Texts
    engine: ServingEngine
    num_slots: int  # requests that run at once
    own: LLM  # where it runs in this process
    division: Division | None = None  # of the device's memory, where it runs in this process
    _own_engine: AsyncEngine
    grammars: Grammars
    fingerprint: str
    forms: ModelForms

    def __init__(
        self,
        name: str,
        limits: Limits,
        is_deterministic: bool,
        form_choice: FormChoice | None = None,
        desk: ReceiptDesk | None = None,
        publisher: KvEventPublisher | None = None,
    ) -> None:
        self.name, self.limits, self.is_deterministic = name, limits, is_deterministic
        self._form_choice, self.desk = form_choice or FormChoice(), desk or ReceiptDesk()
        self._publisher = publisher
        self.created = int(time.time())
        self._state, self.reason = LOADING, "the model is loading"
        self.failure: str | None = None  # why it could not be loaded, in words that may name files
        self._preparing: asyncio.Future[Any] | None = None  # what receipts need of the model's files

    @property
    def state(self) -> str:
        if self._state == READY and not self.engine.is_alive:
            failure = self.engine.failure or "the engine has stopped"
            log.error("%s", failure)
            self._state, self.reason = FAILED, ": ".join(failure.split(": ")[:2])  # what happened, and its class
        return self._state

    def log_settled(self) -> None:
        """A log line that says whether it can be served."""
        if self.failure is not None:
            log.error("%s cannot be served: %s", self.name, self.failure)
        else:
            log.info("%s is ready: %s", self.name, self.fingerprint)

    @property
    def tier(self) -> str:
        return self._tier if self._state == READY else ""

    async def load(self, make: Callable[[], LLM], path: Path | None, observer: Observer | None) -> None:
        """Loads beside a server that already answers; a failure is kept, whole and as the reason for clients."""
        await self._settle(self._load(make, path, observer))

    async def _settle(self, loading: Coroutine[Any, Any, None]) -> None:
        """Takes the state that loading ends in."""
        try:
            await loading
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # panics of native libraries are not Exceptions
            self.failure, kind = reason_of(error), type(error).__name__
            self._state, self.reason = FAILED, f"the model cannot be loaded ({kind}); the server's log says why"
            return
        if self._state == LOADING:
            self._state, self.reason = READY, ""

    async def _load(self, make: Callable[[], LLM], path: Path | None, observer: Observer | None) -> None:
        llm, digest = await asyncio.gather(on_own_thread(make), on_own_thread(file_digest, path))
        if not self._keeps_promise(llm.numerics):
            return
        self.llm = self.own = llm
        self.num_slots, self.division = llm.runner.limits.max_sequences, llm.division
        parts = (__version__, f"n{NUMERICS_VERSION}", llm.numerics, llm.runner.backend.name, digest)
        self.fingerprint = "samebits-" + "-".join(parts)
        llm.engine.watch(observer)
        if self._publisher is not None:
            self._publisher.start(digest.encode(), llm.runner.limits.page_size)
            llm.engine.watch_pages(self._publisher)
        self.forms = ModelForms(llm, self._form_choice)
        vocabulary = vocabulary_of(path, llm.runner.vocab_size, llm.tokenizer.special)
        self.grammars = Grammars(vocabulary, self.limits.grammar_seconds)
        try:  # the engine's thread last, since it must be ended again
            self.engine = self._own_engine = AsyncEngine(llm.engine, self.limits.max_waiting)
        except BaseException:
            self.grammars.close()
            raise

    def _keeps_promise(self, tier: str) -> bool:
        """Notes the tier; False, with the reason noted, for one that a deterministic server cannot have."""
        self._tier = tier
        if self.is_deterministic and Tier.parse(tier) < Tier.INVARIANT:
            reason = f"--deterministic needs invariant or portable numerics, and this is {tier}"
            self._state, self.reason, self.failure = FAILED, reason, reason
            return False
        return True

    async def prepare_receipts(self) -> None:
        """Wait until the engine can make receipts. The first request has it hash the model's files.

        All requests wait for the same thread: hashing a large model takes minutes, and each thread that waited for it
        would be one less for other clients' work.
        """
        found = self._preparing
        if found is None or (found.done() and (found.cancelled() or found.exception() is not None)):
            engine = self.own.engine
            self._preparing = found = asyncio.ensure_future(on_own_thread(lambda: engine.notary))
            found.add_done_callback(lambda done: done.cancelled() or done.exception())  # its clients may have left
        await asyncio.shield(found)

    async def seen(self) -> dict[str, object]:
        """What runs and what waits between two steps, for the page."""
        return dict(await self._own_engine.look(_seen))

    async def metrics_text(self, metrics: Metrics) -> bytes:
        """All metrics in Prometheus's format."""
        return metrics.text(self.own.engine if self.state == READY else None, self.name)

    def ready(self) -> ServedModel:
        """Itself; ApiError 503 while it cannot serve."""
        if self.state != READY:
            raise busy(self.reason)
        return self

    def check_name(self, name: str | None) -> None:
        """ApiError 404 for a model that is not served; no name at all is fine."""
        if name and name != self.name:
            raise ApiError(404, f"model is {name!r}, but this server has {self.name!r}", "model", "model_not_found")

    def close(self) -> None:
        if self._state == READY:
            self._state, self.reason = CLOSED, "the server is shutting down"
            self.engine.close()
            self.grammars.close()
        if self._publisher is not None:
            self._publisher.close()


def _seen(engine: Engine) -> dict[str, object]:
    scheduler, pages = engine.scheduler, engine.scheduler.pages
    sequences = [
        {
            "known": int(scheduler.slots.known[s.slot]),
            "computed": int(scheduler.slots.computed[s.slot]),
            "pages": int(pages.num_held[s.slot]),
            "cached": s.num_cached_tokens,
        }
        for s in scheduler.slots.running[:SHOWN_SLOTS]
    ]
    return {
        "running": sequences,
        "num_running": scheduler.num_running,
        "num_waiting": scheduler.num_waiting,
        "pages": {"all": pages.pool.num_pages - 1, "used": pages.num_used, "idle": pages.pool.num_idle},
        "preemptions": scheduler.num_preemptions,
    }


def file_digest(path: Path | None) -> str:
    """The start of the SHA-256 of a model's file, or of all files of a folder in order of their names."""
    digest = hashlib.sha256()
    files = [] if path is None else sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]
    for file in files:
        with file.open("rb") as stream:
            while part := stream.read(READ_BYTES):
                digest.update(part)
    return digest.hexdigest()[:16]
