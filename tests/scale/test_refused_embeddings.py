"""What a replica refuses of embeddings arrives as what it is, through what Ray makes of errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs pip install 'samebits[dev]'")

from random_tiny import write_random_tiny

from samebits import LLM
from samebits.core.errors import BadInput
from samebits.engine.async_engine import QueueFull
from samebits.engine.job import DeadlinePassed, RequestFailed
from samebits.server.limits import Limits
from samebits.server.model import ServedModel
from samebits.server.relay.engine import RelayEngine
from samebits.server.relay.lines import Switchboard

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, when it is imported
PLAN = "plan"


class Handle:
    """One replica as Ray's handle shows it: an error is wrapped, whatever it was."""

    def __init__(self, replica: Any) -> None:
        self.num_calls, self.embed = 0, SimpleNamespace(remote=self._call)
        self._replica = replica

    async def _call(self, *arguments: Any) -> Any:
        from ray.exceptions import RayTaskError

        self.num_calls += 1
        try:
            return await self._replica.embed(*arguments)
        except Exception as error:
            raise RayTaskError("embed", "a traceback", error) from None


def relayed_to(path: Path, use: Callable[[RelayEngine, Handle, ServedModel], Awaitable[None]]) -> None:
    """Run `use` with a relaying engine, the handle behind it, and the model of its one replica."""
    from samebits.scale.replica import Replica
    from samebits.scale.replicas import RayReplicas

    async def run() -> None:
        served = ServedModel("tiny", Limits(max_waiting=1), False)
        await served.load(lambda: LLM(path, max_sequences=1, threads=1), path, None)
        replica = object.__new__(Replica)
        replica._served = served
        replica._answerer = SimpleNamespace(plan=PLAN, close=lambda: None)  # type: ignore[assignment]
        handle, replicas = Handle(replica), RayReplicas(lambda: None, lambda: None)  # type: ignore[arg-type,return-value]
        replicas._handle = handle
        board = Switchboard()
        await board.open("127.0.0.1")
        engine = RelayEngine(replicas, board, PLAN, resumes=True)
        try:
            await use(engine, handle, served)
        finally:
            engine.close()

    asyncio.run(run())


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_tiny(tmp_path_factory.mktemp("models") / "random.gguf")


def test_a_full_queue_is_a_full_queue(path: Path) -> None:
    async def use(engine: RelayEngine, handle: Handle, served: ServedModel) -> None:
        works = [engine.embed([5] * 1000, "mean") for _ in range(8)]
        ended = await asyncio.gather(*works, return_exceptions=True)
        kinds = {type(end) for end in ended}
        assert kinds == {np.ndarray, QueueFull}
        assert handle.num_calls == len(works)

    relayed_to(path, use)


@pytest.mark.parametrize(
    ("tokens", "deadline", "kind"), [([10**6], None, BadInput), ([5], 0.0, DeadlinePassed), ([], None, BadInput)]
)
def test_other_refusals_keep_their_kind(
    path: Path, tokens: list[int], deadline: float | None, kind: type[Exception]
) -> None:
    async def use(engine: RelayEngine, handle: Handle, served: ServedModel) -> None:
        with pytest.raises(kind) as error:
            await engine.embed(tokens, "mean", deadline=deadline)
        assert "traceback" not in str(error.value)
        assert handle.num_calls == 1

    relayed_to(path, use)


def test_an_engine_that_died_is_a_lost_replica(path: Path) -> None:
    async def use(engine: RelayEngine, handle: Handle, served: ServedModel) -> None:
        served.engine.close()
        with pytest.raises(RequestFailed, match="a replica was lost"):
            await engine.embed([5], "mean")
        assert handle.num_calls > 1

    relayed_to(path, use)
