"""A served model whose engines are in other processes: texts are read and written here, tokens come from there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from samebits import NUMERICS_VERSION, __version__
from samebits.api.llm import LLM
from samebits.api.texts import FileTexts
from samebits.core.sampling_defaults import MODEL
from samebits.core.tiers import Tier
from samebits.engine.notary import place_of
from samebits.grammar.process import vocabulary_of
from samebits.server.grammar.grammars import CheckedGrammars
from samebits.server.http.threads import on_own_thread
from samebits.server.metrics import Metrics
from samebits.server.model import READY, ServedModel, file_digest
from samebits.server.relay.engine import RelayEngine, Upstream
from samebits.server.relay.lines import Switchboard
from samebits.server.relay.merging import merged_metrics, merged_state
from samebits.server.turns.model_forms import ModelForms

ID_CHARS = 12
ANSWERING = ("context_len", "k_format", "v_format", "numerics")  # settings that change what is answered


class About(NamedTuple):
    """What a replica says of itself."""

    fingerprint: str
    tier: str
    max_len: int
    num_slots: int
    edition: str


class Replicas(Upstream, Protocol):
    """All replicas of a model."""

    async def open(self) -> str:
        """Waits until there are some; the address of this machine that they can reach."""

    async def about(self, plan: str) -> About:
        """What one of this plan says of itself; waits for one."""

    async def states(self) -> list[dict[str, Any]]:
        """What each has under way, for the page."""

    async def metrics(self) -> dict[str, bytes]:
        """Each one's metrics by its name."""

    def close(self) -> None:
        """Lets go of them, from any thread."""


def plan_id(path: Path, settings: Mapping[str, Any]) -> str:
    """What a server and its replicas are set up for: version, model by content, and settings that change answers."""
    told = {name: settings.get(name) for name in ANSWERING}
    return _digest([__version__, NUMERICS_VERSION, file_digest(path), told])


def edition_id(plan: str, llm: LLM) -> str:
    """Whose bits are the same: all of a plan at portable numerics, else those on the same kind of device."""
    place = place_of(llm.runner)
    return _digest([plan, llm.numerics, None if place is None else astuple(place)])


def _digest(told: list[Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:ID_CHARS]


class RelayedModel(ServedModel):
    """`join` in place of `load`. Its fingerprint names the replicas' edition too."""

    _replicas: Replicas | None = None
    _seen_resumed = 0  # answers, in metrics already

    async def join(self, replicas: Replicas, settings: Mapping[str, Any]) -> None:
        """Joins replicas of a model that have these settings of `LLM`; failures are kept, as `load` does."""
        self._replicas = replicas
        await self._settle(self._join(replicas, settings))

    async def _join(self, replicas: Replicas, settings: Mapping[str, Any]) -> None:
        texts = await on_own_thread(FileTexts, settings["model"], settings.get("sampling_defaults", MODEL))
        plan = await on_own_thread(plan_id, texts.path, settings)
        host = await replicas.open()
        about = await replicas.about(plan)
        if not self._keeps_promise(about.tier):
            return
        texts.max_len = about.max_len
        self.llm, self.num_slots = texts, about.num_slots
        head, _, digest = about.fingerprint.rpartition("-")
        self.fingerprint = f"{head}-{about.edition}-{digest}"
        self.forms = ModelForms(texts, self._form_choice)
        board = Switchboard()
        await board.open(host)
        vocabulary = vocabulary_of(texts.path, texts.vocab_size, texts.tokenizer.special)
        self.grammars = CheckedGrammars(vocabulary, self.limits.grammar_seconds)
        resumes = Tier.parse(about.tier) >= Tier.INVARIANT
        self.engine = RelayEngine(replicas, board, plan, resumes)

    async def prepare_receipts(self) -> None:
        """Nothing: replicas make receipts, and prepare for it themselves."""

    async def seen(self) -> dict[str, object]:
        return merged_state(await self._replicas.states() if self._replicas else [])

    async def metrics_text(self, metrics: Metrics) -> bytes:
        """Those of this process, and those of every replica with its name as a label."""
        of_replicas: dict[str, bytes] = {}
        if self._replicas is not None and self.state == READY and isinstance(self.engine, RelayEngine):
            of_replicas = await self._replicas.metrics()
            metrics.resumed.inc(self.engine.num_resumed - self._seen_resumed)
            self._seen_resumed = self.engine.num_resumed
        return merged_metrics(metrics.text(None, self.name), of_replicas)

    def close(self) -> None:
        super().close()
        if self._replicas is not None:
            self._replicas.close()
