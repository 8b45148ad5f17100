"""The side with the engine: takes asks, and tells who asked of every piece."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from samebits.core.errors import SamebitsError
from samebits.engine.faults import reason_of
from samebits.engine.request_options import RequestOptions
from samebits.grammar.masks import Follower
from samebits.server.engines import AnswerStream
from samebits.server.grammar.output_format import OutputFormat
from samebits.server.http.errors import ApiError
from samebits.server.model import ServedModel
from samebits.server.relay.ask import Ask, Lost, ReplyTo, WrongEdition
from samebits.server.relay.line import Line
from samebits.server.relay.lines import Lines
from samebits.server.relay.wire import ACCEPTED, ENDED, FIRST, PIECE, REFUSED, error_row, logprobs_row, piece_row


class _Started(NamedTuple):
    """An ask's stream, and what its masks come from if it has a grammar."""

    stream: AnswerStream
    follower: Follower | None

    def close(self) -> None:
        self.stream.close()
        if self.follower is not None:
            self.follower.end()


Starting = asyncio.Task[_Started]


class Answerer:
    """Answers asks with a model that is ready, and whose bits are those of `plan` and `edition`."""

    def __init__(self, served: ServedModel, plan: str, edition: str) -> None:
        self._served, self.plan, self.edition = served, plan, edition
        self._under_way: dict[tuple[ReplyTo, int], Starting] = {}  # from an ask's arrival to its end
        self._lines = Lines(self._cancel, self._cancel_all)

    async def answer(self, ask: Ask) -> None:
        """Return when the request has ended, in whatever way. Raise Lost if nobody listens to the answer."""
        line = await self._lines.to(ask.reply_to)
        starting = asyncio.create_task(self._start(ask))
        self._under_way[ask.reply_to, ask.number] = starting
        try:
            await asyncio.wait({starting})
            if starting.cancelled():  # the asker has left, or does not want the answer any more
                return
            try:
                stream = starting.result().stream
            except (SamebitsError, ApiError) as error:
                line.send([ask.number, REFUSED, *error_row(error)])
                return
            line.send([ask.number, ACCEPTED, self.edition])
            await self._tell(ask.number, line, stream)
        finally:
            self._under_way.pop((ask.reply_to, ask.number), None)
            _end(starting)

    async def _start(self, ask: Ask) -> _Started:
        """Start an ask's stream. Raise SamebitsError or ApiError if it is refused."""
        served, grammar = self._served, ask.grammar
        if ask.plan != self.plan or ask.edition not in (None, self.edition):
            given = f"{self.edition} of {self.plan}"
            raise WrongEdition(f"an answer of {ask.edition or 'any edition'} of {ask.plan} cannot come from {given}")
        if ask.params.receipt:
            await served.prepare_receipts()
        follower: Follower | None = None
        if grammar is not None:
            follower = await served.grammars.follower(OutputFormat(grammar.kind, grammar.source))
        options = RequestOptions(
            priority=ask.priority,
            salt=ask.salt,
            deadline=None if ask.seconds_left is None else served.engine.clock() + ask.seconds_left,
            make_mask=follower.new_mask if follower else None,
            grammar=grammar,
            drafted=ask.begun or None,
            goes_on=bool(ask.begun),
            sample_indices=ask.samples if ask.begun or len(ask.samples) < ask.params.n else None,
        )
        try:
            stream = await served.engine.generate(ask.prompt.tolist(), ask.params, options)
        except BaseException:
            if follower is not None:
                follower.end()
            raise
        return _Started(stream, follower)

    async def _tell(self, number: int, line: Line, stream: AnswerStream) -> None:
        """Every piece, and the end; Lost where the engine itself has died."""
        job, is_first, reason = stream.job, True, None
        try:
            async for position, piece in stream:
                if is_first:
                    line.send([number, FIRST, job.num_cached_tokens, logprobs_row(job.prompt_logprobs)])
                    is_first = False
                line.send([number, PIECE, position, *piece_row(piece)])
        except Exception as error:
            reason = reason_of(error)
            if not self._served.engine.is_alive:
                raise Lost(reason) from None
        line.send([number, ENDED, reason])

    def _cancel(self, reply_to: ReplyTo, number: int) -> None:
        if (starting := self._under_way.get((reply_to, number))) is not None:
            _end(starting)

    def _cancel_all(self, reply_to: ReplyTo) -> None:
        for (asker, _), starting in list(self._under_way.items()):
            if asker == reply_to:
                _end(starting)

    def close(self) -> None:
        """Lets go of all who ask; what is under way ends."""
        self._lines.close()


def _end(starting: Starting) -> None:
    """Cancel what is being started, and close what was started; that may end by itself at any time."""

    def close(done: Starting) -> None:
        if not done.cancelled() and done.exception() is None:
            done.result().close()

    if starting.done():
        close(starting)
    else:
        starting.cancel()
        starting.add_done_callback(close)
