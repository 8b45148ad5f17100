"""An async engine outlives what the code of its requests raises, and callers that go away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fuses import LONG, Fuse, FusedMask, Panic, victim_of
from scenes import PARAMS, Lab, prompt_of

from samebits.engine.async_engine import AsyncEngine
from samebits.engine.job import RequestFailed
from samebits.engine.request_options import RequestOptions


@pytest.mark.parametrize("where", ["allowed", "accept", "text", "finish"])
@pytest.mark.parametrize("kind", [ValueError, Panic, SystemExit])
def test_an_async_engine_goes_on(lab: Lab, where: str, kind: type[BaseException]) -> None:
    async def scenario() -> None:
        engine = AsyncEngine(lab.engine())
        try:
            watched = asyncio.create_task(completions(engine, "shaped"))
            stream = await engine.generate([5], LONG)
            victim = await engine.look(lambda inner: victim_of(lab, inner, where, Fuse(1, kind), LONG))
            with pytest.raises(RequestFailed, match=r"a panic|cannot be made"):
                await engine.generate([5], LONG, RequestOptions(make_mask=broken_maker(kind)))
            await stream.completions()
            assert await watched == lab.alone["shaped"]
            await engine.drain()
            assert victim.error == f"{kind.__name__}: a fuse blew"
            assert engine.is_alive
        finally:
            engine.close()

    asyncio.run(scenario())


def broken_maker(kind: type[BaseException]) -> Callable[[], Any]:
    def make() -> Any:
        raise RequestFailed("cannot be made") if kind is ValueError else kind("a panic")

    return make


async def completions(engine: AsyncEngine, name: str) -> Any:
    stream = await engine.generate(prompt_of(name, engine.engine.runner.vocab_size), PARAMS[name])
    return await stream.completions()


def test_callers_that_are_cancelled_at_any_moment_leave_nothing_behind(lab: Lab) -> None:
    """Also before the engine has looked at what they asked, and while it answers."""

    async def scenario() -> None:
        engine = AsyncEngine(lab.engine())
        try:
            watched = [asyncio.create_task(completions(engine, name)) for name in PARAMS]
            calls = (
                lambda: engine.score([5] * 200),
                lambda: engine.embed([5] * 200, "mean"),
                lambda: engine.generate([5] * 30, replace(LONG, max_tokens=300, n=1)),
            )
            for i in range(60):
                task = asyncio.create_task(calls[i % 3]())
                await asyncio.sleep(0.0004 * (i % 7))
                stream = task.result() if task.done() else None
                task.cancel()
                if stream is not None and i % 3 == 2:
                    stream.close()
            assert [await task for task in watched] == [lab.alone[name] for name in PARAMS]
            await asyncio.wait_for(engine.drain(), 30)
            assert engine.is_alive, engine.failure
            assert engine.engine.scheduler.pages.num_used == 0
        finally:
            engine.close()

    asyncio.run(scenario())


def test_a_caller_cancelled_while_its_request_starts_ends_it(lab: Lab) -> None:
    is_starting, may_go = threading.Event(), threading.Event()
    accepted: list[int] = []

    class Counting(FusedMask):
        def accept(self, token: int) -> None:
            accepted.append(token)

    def make_mask() -> FusedMask:
        is_starting.set()
        assert may_go.wait(30)
        return Counting(lab.runner.vocab_size, None, None)

    async def scenario() -> None:
        engine = AsyncEngine(lab.engine())
        try:
            params = replace(LONG, max_tokens=300, n=1)
            task = asyncio.create_task(engine.generate([5], params, RequestOptions(make_mask=make_mask)))
            await asyncio.to_thread(is_starting.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            may_go.set()
            await engine.drain()
            assert len(accepted) < 300
        finally:
            may_go.set()
            engine.close()

    asyncio.run(scenario())
