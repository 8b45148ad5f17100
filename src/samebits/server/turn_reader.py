"""The pieces of one choice, read into events."""

from __future__ import annotations

from samebits.engine.answer import Piece
from samebits.server.turn_events import Event, Finished, ReasoningDelta, TextDelta

FINISH = {"deadline": "length", "cancelled": "length", "error": "length"}  # our reasons in the words that clients know


class TurnReader:
    """Takes a choice's pieces in order; the last one's events end with `Finished`."""

    def push(self, piece: Piece) -> list[Event]:
        events: list[Event] = []
        if piece.text:
            events.append(TextDelta(piece.text) if piece.is_answer else ReasoningDelta(piece.text))
        if piece.finish_reason is not None:
            events.append(Finished(FINISH.get(piece.finish_reason, piece.finish_reason)))
        return events
