"""An answer as blocks, one after another: reasoning, texts and calls, as protocols with content blocks have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from samebits.server.turns.events import (
    CallArguments,
    CallStarted,
    ChoiceAnswer,
    Event,
    Finished,
    TextDelta,
)

Kind = Literal["reasoning", "text", "call"]


@dataclass
class Block:
    """`text` is a call's arguments where it is one; `id` and `name` are a call's."""

    kind: Kind
    text: str = ""
    id: str = ""
    name: str = ""


@dataclass(frozen=True)
class Opened:
    index: int
    block: Block


@dataclass(frozen=True)
class Grown:
    index: int
    block: Block
    text: str


@dataclass(frozen=True)
class Closed:
    index: int
    block: Block


BlockEvent = Opened | Grown | Closed


class BlockWriter:
    """Turns the events of a choice into blocks; a block is closed when another begins, or at the end."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._is_open = False

    def push(self, event: Event) -> Iterator[BlockEvent]:
        if isinstance(event, Finished):
            yield from self._close()
        elif isinstance(event, CallStarted):
            yield from self._open(Block("call", id=event.id, name=event.name))
        elif isinstance(event, CallArguments):
            yield self._grow(event.text)
        else:
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
        block = self.blocks[-1]
        block.text += text
        return Grown(len(self.blocks) - 1, block, text)

    def _close(self) -> Iterator[BlockEvent]:
        if self._is_open:
            self._is_open = False
            yield Closed(len(self.blocks) - 1, self.blocks[-1])


def blocks_of(answer: ChoiceAnswer) -> list[Block]:
    """A whole answer's: its reasoning, its text, its calls. One that says nothing has an empty text."""
    blocks = [Block("reasoning", answer.reasoning)] if answer.reasoning else []
    if answer.text or not answer.calls:
        blocks.append(Block("text", answer.text))
    return blocks + [Block("call", call.arguments, call.id, call.name) for call in answer.calls]
