"""One ask under way: its messages, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from samebits.engine.answer import FAILED, Piece
from samebits.engine.job import RequestFailed
from samebits.server.relay.ask import Lost
from samebits.server.relay.job import RelayedJob
from samebits.server.relay.line import Line
from samebits.server.relay.wire import (
    ACCEPTED,
    ENDED,
    FIRST,
    PIECE,
    REFUSED,
    Garbled,
    error_of,
    logprobs_of,
    piece_of,
)


class Attempt:
    """Receives what one ask brings. Pieces of tokens that the job has already are left out: they come again, verified.

    outcome   done when the ask has ended; Lost where others may go on, RequestFailed, or why it was refused
    """

    def __init__(
        self,
        job: RelayedJob,
        samples: tuple[int, ...],
        give: Callable[[int, Piece], None],
        accepted: Callable[[str], None],
    ) -> None:
        """give: takes a sample's next piece; accepted: is told the edition of whoever answers."""
        self.line: Line | None = None
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.samples, self.was_accepted = samples, False
        self._job, self._give, self._accepted = job, give, accepted
        self._num_known = [len(job.token_ids(sample)) for sample in samples]

    def take(self, kind: str, rest: list[Any]) -> None:
        if self.outcome.done():
            return
        try:
            if kind == PIECE:
                self._take_piece(rest[0], piece_of(rest[1:]))
            elif kind == FIRST:
                self._job.take_first(int(rest[0]), logprobs_of(rest[1]))
            elif kind == ACCEPTED:
                self.was_accepted = True
                self._accepted(str(rest[0]))
            elif kind == ENDED:
                self._end(None if rest[0] is None else RequestFailed(str(rest[0])))
            elif kind == REFUSED:
                self._end(error_of(rest))
            else:
                raise Garbled(f"a message {kind!r}")
        except (IndexError, TypeError, ValueError, OverflowError) as error:
            raise Garbled(f"no message {kind!r}: {error}") from None

    def lose(self, why: str) -> None:
        self._end(Lost(why))

    def _end(self, error: Exception | None) -> None:
        if self.outcome.done():
            return
        if error is None:
            self.outcome.set_result(None)
        else:
            self.outcome.set_exception(error)

    def _take_piece(self, position: int, piece: Piece) -> None:
        if piece.finish_reason == "cancelled":  # nobody here wished it: whoever answers is being stopped
            self.lose("it was stopped")
        elif piece.finish_reason == "diverged":
            self._end(RequestFailed("the answer cannot go on elsewhere: its tokens are not drawn again there"))
        elif piece.finish_reason == FAILED:
            pass  # the reason follows, and may be one for which others go on
        elif piece.token_id is not None and self._num_known[position]:
            self._num_known[position] -= 1
        else:
            self._give(self.samples[position], piece)
