"""What goes between processes: every piece as it was, and nothing from those who do not know the secret."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from samebits.core.errors import BadInput
from samebits.engine.answer import Piece
from samebits.engine.async_engine import QueueFull
from samebits.engine.job import RequestFailed
from samebits.server.relay.ask import Lost, WrongEdition
from samebits.server.relay.line import Line
from samebits.server.relay.lines import Lines, Switchboard
from samebits.server.relay.wire import (
    LENGTH,
    Garbled,
    Unpacker,
    error_of,
    error_row,
    logprobs_of,
    pack,
    piece_of,
    piece_row,
)

PIECES = [
    Piece(5, "a"),
    Piece(None, "", finish_reason="length"),
    Piece(0, "", 0.0),
    Piece(7, "\udc80é", -1.25, ((7, -1.25), (9, -3e-20)), "stop", "final", "tool", "x", "00ff"),
    Piece(7, "", float("-inf")),
]


@pytest.mark.parametrize("piece", PIECES)
def test_a_piece_comes_as_it_was(piece: Piece) -> None:
    assert piece_of(json.loads(json.dumps(piece_row(piece)))) == piece


def test_numbers_that_no_double_holds_are_no_log_probabilities() -> None:
    with pytest.raises(Garbled):
        logprobs_of([[10**400], []])


def test_deep_nesting_is_no_message() -> None:
    data = b"[" * 200_000
    with pytest.raises(Garbled):
        list(Unpacker().feed(LENGTH.pack(len(data)) + data))


@pytest.mark.parametrize(
    "row", [[], ["5", "a"], [5, 6], [5, "a", None, [[1]]], [5, "a", None, 3], [5], [5, "a", 0.0, [[float("inf"), 0]]]]
)
def test_what_is_no_piece(row: list[Any]) -> None:
    with pytest.raises(Garbled):
        piece_of(row)


@pytest.mark.parametrize(
    "error",
    [
        BadInput("generate", "prompt", "9, but must be more", "8; or 7"),
        QueueFull("3 wait"),
        WrongEdition("other"),
        RequestFailed("why"),
    ],
)
def test_refusals_come_as_they_were(error: Exception) -> None:
    again = error_of(error_row(error))
    assert (type(again), str(again)) == (type(error), str(error))


def test_messages_in_any_parts() -> None:
    data = pack([1, "piece", 0]) + pack([2, "ended", None])
    unpacker = Unpacker()
    found = [message for byte in data for message in unpacker.feed(bytes([byte]))]
    assert found == [[1, "piece", 0], [2, "ended", None]]


@pytest.mark.parametrize(
    "data", [LENGTH.pack(1 << 31), LENGTH.pack(1) + b"{", LENGTH.pack(2) + b"[]", pack(["1", "x"])]
)
def test_bytes_that_are_no_messages(data: bytes) -> None:
    with pytest.raises(Garbled):
        list(Unpacker().feed(data))


class Heard:
    """A receiver that keeps everything."""

    def __init__(self) -> None:
        self.line: Line | None = None
        self.messages: list[Any] = []
        self.lost: list[str] = []

    def take(self, kind: str, rest: list[Any]) -> None:
        self.messages.append([kind, *rest])

    def lose(self, why: str) -> None:
        self.lost.append(why)


def test_only_who_knows_the_secret_is_heard() -> None:
    async def scene() -> None:
        board, heard = Switchboard(), Heard()
        await board.open("127.0.0.1")
        number = board.add(heard)
        lines = Lines(lambda *_: None, lambda _: None)
        stranger = await lines.to(board.reply_to._replace(secret=bytes(32)))
        stranger.send([number, "piece", "from a stranger"])
        friend = await lines.to(board.reply_to)
        friend.send([number, "piece", 1])
        async with asyncio.timeout(60):
            while not (heard.messages and stranger.is_lost):
                await asyncio.sleep(0.01)
        assert heard.messages == [["piece", 1]]
        lines.close()
        async with asyncio.timeout(60):
            while not heard.lost:
                await asyncio.sleep(0.01)
        board.close()
        with pytest.raises(Lost, match="takes no connection"):
            await Lines(lambda *_: None, lambda _: None).to(board.reply_to)

    asyncio.run(scene())
