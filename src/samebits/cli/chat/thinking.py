"""Which part of an answer is reasoning: other channels than the final one, or what stands between a model's marks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samebits.engine.answer import Piece
    from samebits.engine.reasoning import ReasoningSplitter


@dataclass(frozen=True)
class Part:
    """Text of an answer; `piece` is the last piece of the engine's that it came with."""

    text: str
    is_reasoning: bool
    piece: Piece


def parts(pieces: Iterable[Piece], splitter: ReasoningSplitter | None) -> Iterator[Part]:
    """The pieces' texts, with what they are; a piece without text that ends the answer is a part too."""
    for piece in pieces:
        if splitter is None or not piece.is_answer:
            yield Part(piece.text, not piece.is_answer, piece)
            continue
        spans = splitter.push(piece.text)
        if piece.finish_reason is not None:
            spans += splitter.finish()
        yield from (Part(span.text, span.is_reasoning, piece) for span in spans)
        if not spans:
            yield Part("", False, piece)
