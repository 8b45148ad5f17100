"""Which replica gets a request, by Ray Serve's own interface for that.

Ray has a prefix-aware router, ray.serve.llm's, which cannot be imported without pyarrow and vLLM or SGLang, and asks an
actor three times per request. This one keeps what it needs to know in the process that routes.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from samebits.scale.prefixes import Prefixes

IMBALANCE = 16  # requests that one replica may have more than another for the sake of a prefix
EDITION = "edition"  # in a replica's metadata


class PrefixRouter(RequestRouter):  # type: ignore[misc]
    """A request goes where most of its prompt was computed before, while that has not too many requests.

    Without a prefix it goes where fewest prompts have gone. Beyond `imbalance`, or without prefixes at all, the less
    busy one of two replicas at random gets it. An answer that goes on goes to a replica of its edition.
    """

    def initialize_state(self, imbalance: int = IMBALANCE, by_prefix: bool = True) -> None:
        """by_prefix: False for the power of two choices alone."""
        self._imbalance, self._by_prefix, self._prefixes = imbalance, by_prefix, Prefixes()
        self._ongoing: dict[str, str] = {}  # requests, and the replica that each was last meant for
        self._routing: dict[str, asyncio.Future[object]] = {}  # requests that are not sent yet; done when they are

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Replicas to be tried, one after another."""
        ask = _ask(pending_request)
        edition, prompt = getattr(ask, "edition", None), getattr(ask, "prompt", None)
        same = [r for r in candidate_replicas if edition in (None, r.replica_metadata.get(EDITION))]
        candidates = {r.replica_id.unique_id: r for r in same or candidate_replicas}  # who is of another says so
        two = random.sample(list(candidates), min(2, len(candidates)))
        chosen = self._by_load(two)
        if self._by_prefix and prompt is not None and not self._is_imbalanced(candidates):
            blocks = self._prefixes.blocks(prompt, ask.salt)
            chosen = [*self._by_load(self._best(blocks, list(candidates))), *chosen]
        if pending_request is not None and chosen:  # at once: those of a burst are chosen before any is sent
            self._count(pending_request, chosen[0])
        return [[candidates[name]] for name in dict.fromkeys(chosen)]

    def _count(self, pending_request: PendingRequest, name: str) -> None:
        """Count a request for a replica until it is completed. Ray does not say when one ends before it is sent."""
        request_id, future = pending_request.metadata.internal_request_id, pending_request.future
        if self._routing.get(request_id) is not future:  # a retry has a new one
            self._routing[request_id] = future
            future.add_done_callback(lambda done: self._settle(request_id, done))
        self._ongoing[request_id] = name

    def _settle(self, request_id: str, future: asyncio.Future[object]) -> None:
        """Forget what Ray awaited of a request, and the request if it was cancelled before it was sent."""
        if self._routing.get(request_id) is not future:
            return
        del self._routing[request_id]
        if future.cancelled():
            self._ongoing.pop(request_id, None)

    def _best(self, blocks: list[bytes], names: list[str]) -> list[str]:
        """Those with the longest prefix; for a prompt that nobody knows, those that know fewest prompts."""
        if not blocks:
            return names
        count, owners = self._prefixes.longest(blocks, names)
        if count:
            return sorted(owners)
        fewest = min(map(self._prefixes.num_blocks, names), default=0)
        return [name for name in names if self._prefixes.num_blocks(name) == fewest]

    def _by_load(self, names: list[str]) -> list[str]:
        """The least busy first, at random among equals."""
        counts = Counter(self._ongoing.values())
        return sorted(random.sample(names, len(names)), key=counts.__getitem__)

    def _is_imbalanced(self, names: Iterable[str]) -> bool:
        counts = Counter(self._ongoing.values())
        loads = [counts[name] for name in names]
        return bool(loads) and max(loads) - min(loads) > self._imbalance

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: object) -> None:
        ask = _ask(pending_request)
        if self._by_prefix and hasattr(ask, "prompt"):
            self._prefixes.note(self._prefixes.blocks(ask.prompt, ask.salt), replica_id.unique_id)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        self._ongoing.pop(internal_request_id, None)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        super().update_replicas(replicas)
        names = {r.replica_id.unique_id for r in replicas}
        self._prefixes.keep(names)
        self._ongoing = {request: name for request, name in self._ongoing.items() if name in names}


def _ask(pending_request: PendingRequest | None) -> Any:
    """What is routed; None for a mere look for room."""
    return pending_request.args[0] if pending_request is not None and pending_request.args else None
