"""An answer as blocks, one after another: reasoning, texts and calls, as protocols with content blocks have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from samebits.engine.answer import Piece
from samebits.server.turns.events import (
    CallArguments,
    CallStarted,
    ChoiceAnswer,
    Event,
    Finished,
    Step,
    TextDelta,
)

Kind = Literal["reasoning", "text", "call"]


@dataclass
class Block:
    """A part of an answer.

    text     the arguments, if the block is a call; set when the block is closed
    id       of a call, and `name` its function
    pieces   the tokens of a text with their log-probabilities, where those were asked for
    is_cut   whether the answer was cut in this block
    """

    kind: Kind
    text: str = ""
    id: str = ""
    name: str = ""
    pieces: list[Piece] = field(default_factory=list)
    is_cut: bool = False


@dataclass(frozen=True)
class Opened:
    index: int
    block: Block


@dataclass(frozen=True)
class Grown:
    """Text that was added, and the tokens that it came with; one of the two may be empty."""

    index: int
    block: Block
    text: str
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class Closed:
    index: int
    block: Block


BlockEvent = Opened | Grown | Closed


class BlockWriter:
    """Turns the steps of a choice into blocks; a block is closed when another begins, or at the end.

    A token that brought no text, such as a part of a character, belongs to the text that comes next, or to the last
    one. Tokens of reasoning and of calls belong to no text. An answer without a call has a text, if only an empty one.
    """

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._is_open = False
        self._texts: list[str] = []  # of the open block
        self._waiting: list[Piece] = []  # tokens that have brought nothing yet

    def push(self, step: Step) -> Iterator[BlockEvent]:
        """Yield the changes that one step makes."""
        if not step.is_answer:
            self._waiting.clear()
        if step.piece.logprob is not None and (step.is_answer or _brings_text(step)):
            self._waiting.append(step.piece)
        for event in step.events:
            if isinstance(event, Finished):
                yield from self._finish(event.reason == "length")
            else:
                if not isinstance(event, TextDelta):  # a call's own tokens; the last may bring text as well
                    self._waiting = self._waiting[-1:] if _brings_text(step) else []
                yield from self._write(event)

    def _write(self, event: Event) -> Iterator[BlockEvent]:
        if isinstance(event, CallStarted):
            yield from self._open(Block("call", id=event.id, name=event.name))
        elif isinstance(event, CallArguments):
            yield self._grow(event.text)
        elif not isinstance(event, Finished):
            kind: Kind = "text" if isinstance(event, TextDelta) else "reasoning"
            if not self._is_open or self.blocks[-1].kind != kind:
                yield from self._open(Block(kind))
            yield self._grow(event.text)

    def _open(self, block: Block) -> Iterator[BlockEvent]:
        yield from self._close()
        self.blocks.append(block)
        self._is_open = True
        yield Opened(len(self.blocks) - 1, block)

    def _grow(self, text: str) -> BlockEvent:
        block, pieces = self.blocks[-1], tuple[Piece, ...]()
        if block.kind == "text":
            pieces, self._waiting = tuple(self._waiting), []
        self._texts.append(text)
        block.pieces += pieces
        return Grown(len(self.blocks) - 1, block, text, pieces)

    def _close(self, is_cut: bool = False) -> Iterator[BlockEvent]:
        if self._is_open:
            self._is_open = False
            self.blocks[-1].text, self._texts = "".join(self._texts), []
            self.blocks[-1].is_cut = is_cut
            yield Closed(len(self.blocks) - 1, self.blocks[-1])

    def _finish(self, is_cut: bool) -> Iterator[BlockEvent]:
        if all(block.kind == "reasoning" for block in self.blocks):
            yield from self._open(Block("text"))
        if self._waiting and self.blocks[-1].kind == "text":
            yield self._grow("")
        yield from self._close(is_cut)


def _brings_text(step: Step) -> bool:
    return any(isinstance(event, TextDelta) for event in step.events)


def blocks_of(answer: ChoiceAnswer) -> list[Block]:
    """Return the blocks of a whole answer: those that its stream has."""
    writer = BlockWriter()
    for step in answer.steps:
        for _ in writer.push(step):
            pass
    return writer.blocks
