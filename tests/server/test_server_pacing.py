"""Many requests that arrive at once begin a few in each turn of the event loop; those that only look pass them by."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

from samebits.server.http.pacing import STARTS_A_TURN, Pacer
from samebits.server.http.security import Door, Gate
from samebits.server.limits import Limits

NUM_REQUESTS = 50


class Turns:
    """Counts the turns of the running event loop."""

    def __init__(self) -> None:
        self.number = 0
        self._tick()

    def _tick(self) -> None:
        self.number += 1
        self._handle = asyncio.get_running_loop().call_soon(self._tick)

    def end(self) -> None:
        self._handle.cancel()


def test_a_few_pass_in_each_turn_in_their_order() -> None:
    async def run() -> None:
        pacer, turns, passed = Pacer(3), Turns(), list[tuple[int, int]]()

        async def pass_by(number: int) -> None:
            await pacer.wait()
            passed.append((number, turns.number))

        tasks = [asyncio.create_task(pass_by(number)) for number in range(NUM_REQUESTS)]
        await asyncio.sleep(0)
        for number in range(10, 20):  # clients that leave while they wait
            tasks[number].cancel()
        await asyncio.wait(tasks, timeout=10)
        await asyncio.wait_for(pacer.wait(), 10)  # nobody waits any more
        turns.end()
        assert [number for number, _ in passed] == [*range(10), *range(20, NUM_REQUESTS)]
        assert max(Counter(turn for _, turn in passed).values()) <= 3

    asyncio.run(run())


def test_posts_begin_in_turns_and_health_is_not_behind_them() -> None:
    async def run() -> None:
        turns, begun = Turns(), list[tuple[str, int]]()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            begun.append((scope["method"], turns.number))

        served: Any = SimpleNamespace(limits=Limits(), tier="")
        gate, host = Gate(app, Door(), served), [(b"host", b"localhost")]

        async def ask(method: str, path: str) -> None:
            headers = [*host, (b"content-type", b"application/json")]
            await gate({"type": "http", "method": method, "path": path, "headers": headers}, None, None)  # type: ignore[arg-type]

        posts = [asyncio.create_task(ask("POST", "/tokenize")) for _ in range(NUM_REQUESTS)]
        await asyncio.gather(*posts, asyncio.create_task(ask("GET", "/health")))
        turns.end()
        in_a_turn = Counter(turn for method, turn in begun if method == "POST")
        assert in_a_turn.total() == NUM_REQUESTS
        assert max(in_a_turn.values()) <= STARTS_A_TURN
        assert ("GET", begun[0][1]) in begun

    asyncio.run(run())
