"""The model behind a server: loading, then serving, until it is closed or has failed."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from samebits import NUMERICS_VERSION, __version__
from samebits.api.llm import LLM
from samebits.core.tiers import Tier
from samebits.engine.async_engine import AsyncEngine
from samebits.engine.faults import reason_of
from samebits.engine.observer import Observer
from samebits.grammar.process import vocabulary_of
from samebits.server.grammar.grammars import Grammars
from samebits.server.http.errors import ApiError, busy
from samebits.server.limits import Limits
from samebits.server.receipts import ReceiptDesk
from samebits.server.turns.model_forms import FormChoice, ModelForms

LOADING, READY, FAILED, CLOSED = "loading", "ready", "failed", "closed"
log = logging.getLogger("samebits.server")
READ_BYTES = 1 << 20


class ServedModel:
    """`name` is what clients call it. Everything but `state` and `reason` is there once the state is ready.

    `reason` is for clients: it names no file, whatever went wrong. The log has the whole of it.
    """

    llm: LLM
    engine: AsyncEngine
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
    ) -> None:
        self.name, self.limits, self.is_deterministic = name, limits, is_deterministic
        self._form_choice, self.desk = form_choice or FormChoice(), desk or ReceiptDesk()
        self.created = int(time.time())
        self._state, self.reason = LOADING, "the model is loading"
        self.failure: str | None = None  # why it could not be loaded, in words that may name files

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
        return self.llm.numerics if self._state == READY else ""

    async def load(self, make: Callable[[], LLM], path: Path | None, observer: Observer | None) -> None:
        """Loads beside a server that already answers; a failure is kept, whole and as the reason for clients."""
        try:
            self.llm, digest = await asyncio.gather(asyncio.to_thread(make), asyncio.to_thread(file_digest, path))
            if self.is_deterministic and self.llm.runner.tier < Tier.INVARIANT:
                reason = f"--deterministic needs invariant or portable numerics, and this is {self.llm.numerics}"
                self._state, self.reason, self.failure = FAILED, reason, reason
                return
            self._start(path, digest, observer)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # panics of native libraries are not Exceptions
            self.failure, kind = reason_of(error), type(error).__name__
            self._state, self.reason = FAILED, f"the model cannot be loaded ({kind}); the server's log says why"
            return
        self._state, self.reason = READY, ""

    def _start(self, path: Path | None, digest: str, observer: Observer | None) -> None:
        """Everything that serving takes beside the model; the engine's thread last, since it must be ended again."""
        runner = self.llm.runner
        parts = (__version__, f"n{NUMERICS_VERSION}", self.llm.numerics, runner.backend.name, digest)
        self.fingerprint = "samebits-" + "-".join(parts)
        self.llm.engine.watch(observer)
        self.forms = ModelForms(self.llm, self._form_choice)
        vocabulary = vocabulary_of(path, runner.vocab_size, self.llm.tokenizer.special)
        self.grammars = Grammars(vocabulary, self.limits.grammar_seconds)
        try:
            self.engine = AsyncEngine(self.llm.engine, self.limits.max_waiting)
        except BaseException:
            self.grammars.close()
            raise

    def ready(self) -> ServedModel:
        """Itself; ApiError 503 while it cannot serve."""
        if self.state != READY:
            raise busy(self.reason)
        return self

    def check_name(self, name: str | None) -> None:
        """ApiError 404 for a model that is not served; no name at all is fine."""
        if name and name != self.name:
            raise ApiError(404, f"model: got {name!r}; needs {self.name!r}", "model", "model_not_found")

    def close(self) -> None:
        if self._state == READY:
            self._state, self.reason = CLOSED, "the server is shutting down"
            self.engine.close()
            self.grammars.close()


def file_digest(path: Path | None) -> str:
    """The start of the SHA-256 of a model's file, or of all files of a folder in order of their names."""
    digest = hashlib.sha256()
    files = [] if path is None else sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]
    for file in files:
        with file.open("rb") as stream:
            while part := stream.read(READ_BYTES):
                digest.update(part)
    return digest.hexdigest()[:16]
