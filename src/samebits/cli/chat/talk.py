"""A message to the model: its prompt, its answer piece by piece, and what it cost."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from samebits.cli.chat.conversation import Conversation
from samebits.cli.chat.thinking import Part, parts
from samebits.cli.receipt_file import ReceiptFile
from samebits.core.errors import BadInput
from samebits.engine.reasoning import ReasoningSplitter, marks_for, opens_reasoning
from samebits.engine.sampling import SamplingParams
from samebits.loaders.tokenizer import TextTooLong

if TYPE_CHECKING:
    from samebits.api.llm import LLM
    from samebits.engine.answer import Completion, Piece


class MessageTooLong(BadInput):
    """A message that does not fit, by itself or after what was said before; the conversation is as it was."""

    def __init__(self, given: str, needed: str, *, fits_alone: bool) -> None:
        super().__init__("chat", "message", given, needed)
        self.fits_alone = fits_alone


@dataclass
class Figures:
    """What an answer cost, as far as it has come."""

    num_prompt: int
    max_tokens: int  # of prompt and answer together
    num_tokens: int = 0
    first_at: float = 0.0
    last_at: float = 0.0
    finish_reason: str | None = None
    _noted: Piece | None = None

    def note(self, piece: Piece) -> None:
        """Counts a piece, once however many parts it has."""
        if piece is self._noted:
            return
        now = time.monotonic()
        self._noted, self.first_at, self.last_at = piece, self.first_at or now, now
        self.num_tokens += piece.token_id is not None
        self.finish_reason = piece.finish_reason

    @property
    def line(self) -> str:
        """For a status line: tokens, their rate, and how full the context is."""
        seconds = self.last_at - self.first_at
        rate = f", {(self.num_tokens - 1) / seconds:.1f} tokens/s" if self.num_tokens > 1 and seconds > 0 else ""
        used = self.num_prompt + self.num_tokens
        return f"{self.num_tokens} tokens{rate}, context {used} of {self.max_tokens}"


class Talk:
    """A model and the conversation with it; receipts of finished answers go to a file, if one is named.

    stated  the parameters that the user has stated; the model's own values stand for the others
    """

    def __init__(
        self, llm: LLM, stated: SamplingParams, conversation: Conversation, receipts: ReceiptFile | None = None
    ) -> None:
        self.llm, self.stated, self.conversation, self._receipts = llm, stated, conversation, receipts

    @property
    def params(self) -> SamplingParams:
        """The parameters of answers."""
        return self.stated.resolved(self.llm.sampling_defaults)

    def prompt(self, text: str) -> list[int]:
        """The token ids of the conversation with one more message; MessageTooLong where no answer would fit."""
        longest = self.llm.engine.max_len
        try:
            ids = self.llm.chat_prompt(self.conversation.with_turn(text))
            given = f"{len(ids)} tokens"
        except TextTooLong as error:
            ids, given = None, error.given
        if ids is not None and len(ids) < longest:
            return ids
        try:
            self.llm.encode(text, add_special=False)
        except TextTooLong as error:
            raise MessageTooLong(error.given, f"fewer than {longest} tokens", fits_alone=False) from None
        needed = f"fewer than {longest}: a shorter message or conversation, or a larger --context-len"
        raise MessageTooLong(f"{given} with all that was said before", needed, fits_alone=True)

    def answer(self, prompt: list[int], figures: Figures) -> Generator[Part, None, None]:
        """The answer as it comes; closing the iterator ends it. Figures are noted along the way."""
        template, tokenizer = self.llm.chat_template, self.llm.tokenizer
        marks = marks_for(template.source if template else "", tokenizer)
        splitter = ReasoningSplitter(marks, opens_reasoning(prompt, tokenizer, marks)) if marks else None
        shown = {tokenizer.control_id(text) for text in (marks.opening, marks.closing)} if marks else set()
        shown_ids = frozenset(i for i in shown if i is not None)
        params = replace(self.params, shown_ids=shown_ids, receipt=self._receipts is not None)
        receipt = None
        for part in parts(self.llm.stream(prompt, params), splitter):
            figures.note(part.piece)
            yield part
            receipt = part.piece.receipt or receipt
        if self._receipts and receipt:
            self._receipts.add([receipt])

    def answers(self, prompt: list[int]) -> list[Completion]:
        """All answers that are wished for, when they are finished."""
        found = self.llm.generate([prompt], replace(self.params, receipt=self._receipts is not None))
        if self._receipts:
            self._receipts.add(answer.receipt for answer in found)
        return found
