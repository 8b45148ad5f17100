"""The pieces of one choice, read into events: reasoning and calls are taken out of the text."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from samebits.engine.answer import Piece
from samebits.engine.reasoning import ReasoningSplitter, Span
from samebits.server.tools.gpt_oss import NAMESPACE, addressed_call
from samebits.server.tools.reading import (
    ArgumentsPart,
    Broken,
    CallOpened,
    Found,
    ParsedCall,
    arguments_text,
    parse_json,
)
from samebits.server.tools.scanner import CallScanner
from samebits.server.tools.written import WrittenCalls
from samebits.server.turns.events import CallArguments, CallStarted, Event, Finished, ReasoningDelta, TextDelta

FINISH = {"deadline": "length", "cancelled": "length", "error": "length"}  # our reasons in the words that clients know


class TurnReader:
    """Takes a choice's pieces in order; the last one's events end with `Finished`.

    make_id   the id of a choice's call, from its number
    splitter  finds reasoning in the text; None for a model that has none there
    scanner   finds calls in the text, as the model or a grammar writes them; None where none may come
    ends      tokens that end a message, of a model whose turn has several
    """

    def __init__(
        self,
        make_id: Callable[[int], str] = str,
        splitter: ReasoningSplitter | None = None,
        scanner: CallScanner | WrittenCalls | None = None,
        ends: frozenset[int] = frozenset(),
    ) -> None:
        self._make_id, self._splitter, self._scanner, self._ends = make_id, splitter, scanner, ends
        self._recipient = ""  # of a message to a function
        self._message: list[str] = []  # its text, as far as it has come and is not given
        self._num_calls = 0
        self._arguments: list[str] = []  # of the last call
        self.is_answer = True  # whether the last piece stood outside of reasoning and its marks

    def push(self, piece: Piece) -> list[Event]:
        events: list[Event] = []
        was_reasoning = self._is_reasoning
        if piece.recipient is not None and self._scanner is not None:
            events += self._to_function(self._scanner, piece.recipient, piece.text)
        elif not piece.is_answer:
            events += [ReasoningDelta(piece.text)] if piece.text else []
        else:
            events += self._answer(piece.text)
        self.is_answer = piece.is_answer and not was_reasoning and not self._is_reasoning
        if piece.token_id in self._ends or piece.finish_reason is not None:
            events += self._addressed()
        if piece.finish_reason is not None:
            events += self._rest()
            reason = FINISH.get(piece.finish_reason, piece.finish_reason)
            events.append(Finished("tool_calls" if reason == "stop" and self._ends_whole() else reason))
        return events

    @property
    def _is_reasoning(self) -> bool:
        return self._splitter is not None and self._splitter.is_inside

    def _answer(self, text: str) -> list[Event]:
        spans = self._splitter.push(text) if self._splitter else [Span(text, False)] if text else []
        return self._spans(spans)

    def _spans(self, spans: Iterable[Span]) -> list[Event]:
        events: list[Event] = []
        for span in spans:
            if span.is_reasoning:
                events.append(ReasoningDelta(span.text))
            else:
                events += self._found(self._scanner.push(span.text) if self._scanner else [span.text])
        return events

    def _to_function(self, scanner: CallScanner | WrittenCalls, recipient: str, text: str) -> list[Event]:
        """Text of a message to a function: given at once where a grammar wrote it, else when the message has ended."""
        if isinstance(scanner, CallScanner):
            self._recipient = recipient
            self._message.append(text)
            return []
        if not text:
            return []
        opened: list[Found] = [] if self._recipient else [CallOpened(recipient.removeprefix(NAMESPACE))]
        self._recipient = recipient
        return self._found([*opened, ArgumentsPart(text)])

    def _addressed(self) -> list[Event]:
        """The end of a message, perhaps to a function: a call, or text."""
        text, recipient, self._message, self._recipient = "".join(self._message), self._recipient, [], ""
        if not text:
            return []
        try:
            call = addressed_call(recipient, text)
            is_call = isinstance(self._scanner, CallScanner) and self._scanner.takes(call)
        except Broken:
            is_call = False
        return self._found([call if is_call else text])

    def _rest(self) -> list[Event]:
        events = self._spans(self._splitter.finish()) if self._splitter else []
        return events + (self._found(self._scanner.finish()) if self._scanner else [])

    def _ends_whole(self) -> bool:
        """Whether there are calls and the last one is not cut, by a stop string for instance."""
        try:
            return self._num_calls > 0 and isinstance(parse_json("".join(self._arguments)), dict)
        except Broken:
            return False

    def _found(self, found: Iterable[Found]) -> list[Event]:
        events: list[Event] = []
        for one in found:
            if isinstance(one, str):
                events.append(TextDelta(one))
            elif isinstance(one, ArgumentsPart):
                events.append(self._argument(one.text))
            else:
                events.append(CallStarted(self._num_calls, self._make_id(self._num_calls), one.name))
                self._num_calls, self._arguments = self._num_calls + 1, []
                if isinstance(one, ParsedCall):
                    events.append(self._argument(arguments_text(one)))
        return events

    def _argument(self, text: str) -> Event:
        self._arguments.append(text)
        return CallArguments(self._num_calls - 1, text)
