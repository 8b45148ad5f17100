"""The event loop is everybody's: no answer keeps it for itself, however long it is and however much of it is ready."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from live_server import Running

from samebits.engine.answer import Piece
from samebits.engine.async_engine import AsyncEngine
from samebits.server.answers import engine_streams
from samebits.server.http import server_events
from samebits.server.http.json_output import PART_BYTES, PartedResponse
from samebits.server.http.server_events import event_stream, is_longer

NUM_READY = 2000


async def num_turns_beside(work: Any) -> int:
    """Return how many turns another task gets while some work is done that never has to wait."""
    num_turns = 0

    async def other() -> None:
        nonlocal num_turns
        while True:
            num_turns += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(other())
    await work
    ticking.cancel()
    return num_turns


def test_chunks_that_are_ready_leave_turns_to_others() -> None:
    async def main() -> int:
        async def chunks() -> AsyncIterator[dict[str, Any]]:
            for number in range(NUM_READY):
                yield {"number": number}

        async def read() -> None:
            texts = [text async for text in event_stream(chunks(), "id").body_iterator]
            assert len(texts) == NUM_READY + 1

        return await num_turns_beside(read())

    assert asyncio.run(main()) >= NUM_READY // server_events.CHUNKS_A_TURN


def test_pieces_that_are_ready_leave_turns_to_others() -> None:
    async def main() -> int:
        class Ready:
            job = SimpleNamespace(check=lambda: None)

            def deliver_to(self, give: Callable[[tuple[int, Piece] | None], None]) -> None:
                for _ in range(NUM_READY):
                    give((0, Piece(5, "a")))
                give(None)

            def close(self) -> None: ...

        started = engine_streams.Started([Ready()], None, None, "id")  # type: ignore[list-item, arg-type]

        async def read() -> None:
            assert len([piece async for piece in engine_streams.merged(started)]) == NUM_READY

        return await num_turns_beside(read())

    assert asyncio.run(main()) >= NUM_READY // engine_streams.EVENTS_A_TURN


def test_a_long_answer_leaves_in_parts() -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    body = bytes(range(256)) * (5 * PART_BYTES // 512) + b"end"
    for data in (body, b"", b"a"):
        sent.clear()
        asyncio.run(PartedResponse(data)({}, None, send))  # type: ignore[arg-type]
        assert (b"content-length", b"%d" % len(data)) in sent[0]["headers"]
        assert b"".join(message["body"] for message in sent[1:]) == data
        assert max(len(message["body"]) for message in sent[1:]) <= PART_BYTES
        assert [message["more_body"] for message in sent[1:]] == [True] * (len(sent) - 2) + [False]


def test_a_long_chunk_is_written_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[bool] = []

    def written(chunk: dict[str, Any], encode: Any) -> str:
        try:
            asyncio.get_running_loop()
            loops.append(True)
        except RuntimeError:
            loops.append(False)
        return json.dumps(chunk)

    async def chunks() -> AsyncIterator[Any]:
        yield {"short": [1, 2]}
        yield {"long": [{"text": "x" * 100}] * 1000}
        yield lambda: {"made": "elsewhere"}

    async def main() -> None:
        wire = server_events.Wire("text/plain", written, lambda error: {})
        assert len([text async for text in event_stream(chunks(), "id", wire).body_iterator]) == 3

    asyncio.run(main())
    assert loops == [True, False, False]


def test_length_is_estimated_without_looking_at_all() -> None:
    class Counted(list[Any]):
        num_looks = 0

        def __iter__(self) -> Any:
            Counted.num_looks += 1
            return super().__iter__()

    assert not is_longer({"a": ["b" * 90, 1, None, {"c": 2.5}]}, 200)
    assert is_longer({"a": ["b" * 90, {"c": "d" * 111}]}, 200)
    assert is_longer([Counted([1] * 300)] * 5, 200)
    assert Counted.num_looks == 0


def test_waiting_for_a_text_takes_no_turns(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many steps its text needs, and however many texts there are."""
    asked, ask = SimpleNamespace(count=0), AsyncEngine._ask

    async def count(self: AsyncEngine, *given: Any) -> Any:
        asked.count += 1
        return await ask(self, *given)

    monkeypatch.setattr(AsyncEngine, "_ask", count)
    with server.client() as client:
        reply = client.post("/v1/embeddings", json={"input": [[5] * 500] * 12})
    assert reply.status_code == 200
    assert asked.count == 12
