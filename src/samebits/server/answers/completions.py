"""Answers of /v1/completions in OpenAI's shapes: whole ones and chunks of streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from samebits.engine.answer import Completion, Piece
from samebits.loaders import Tokenizer
from samebits.server.answers.common import of_prompt, proofs, token_ids, token_text
from samebits.server.bodies.openai import CompletionBody
from samebits.server.engines import Answering
from samebits.server.receipts import ReceiptDesk
from samebits.server.turns.reader import FINISH

WHOLE = CHUNK = "text_completion"
PREFIX = "cmpl-"
Token = tuple[int, float | None, tuple[tuple[int, float], ...]]  # its id, log-probability and alternatives


def finish_reason(reason: str | None) -> str | None:
    return None if reason is None else FINISH.get(reason, reason)


class Logprobs:
    """Log-probabilities in OpenAI's four lists; offsets count the characters of the choice's text so far."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._offset = tokenizer, 0

    def lists(self, tokens: Iterable[Token]) -> dict[str, Any]:
        """Those of the next tokens; one that is no text stands where it is, and is none."""
        result: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token, logprob, top in tokens:
            text = token_text(self._tokenizer, token)
            result["tokens"].append(text)
            result["token_logprobs"].append(logprob)
            named = {token_text(self._tokenizer, t): value for t, value in top}
            result["top_logprobs"].append(named if logprob is not None else None)
            result["text_offset"].append(self._offset)
            self._offset += 0 if token in self._tokenizer.control_ids else len(text)
        return dict(result)


def prompt_tokens(job: Answering) -> Iterator[Token]:
    """A prompt's tokens with what was found of them; nothing is known of the first."""
    found, ids = job.prompt_logprobs, job.prompt.tolist()
    if found is not None:
        yield ids[0], None, ()
        for token, logprob, top in zip(ids[1:], found.token_logprobs, found.top, strict=False):
            yield token, logprob, top[: job.params.logprobs]


def answer_tokens(pieces: Iterable[Piece]) -> Iterator[Token]:
    return ((p.token_id, p.logprob, p.top_logprobs) for p in pieces if p.token_id is not None and p.logprob is not None)


class ChoiceShape:
    """One choice, whole or in parts; `echoed` is the text of its prompt, where that is part of it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        index: int,
        job: Answering,
        body: CompletionBody,
        echoed: str | None,
        desk: ReceiptDesk | None,
    ) -> None:
        self._tokenizer, self._index, self._job, self._echoed = tokenizer, index, job, echoed
        self._desk = desk
        self._logprobs = Logprobs(tokenizer) if body.logprobs is not None else None
        self._tells_of_prompt, self._has_token_ids = body.prompt_logprobs is not None, bool(body.return_token_ids)

    def whole(self, answer: Completion) -> dict[str, Any]:
        """The choice; its logprobs are null where not asked for."""
        tokens = [*(prompt_tokens(self._job) if self._echoed is not None else ()), *answer_tokens(answer.logprobs)]
        return {
            "index": self._index,
            "text": (self._echoed or "") + answer.text,
            "logprobs": self._logprobs.lists(tokens) if self._logprobs else None,
            "finish_reason": finish_reason(answer.finish_reason),
            **proofs(answer, self._desk),
            **(token_ids(answer.token_ids) if self._has_token_ids else {}),
            **(of_prompt(self._tokenizer, self._job) if self._tells_of_prompt else {}),
        }

    def part(self, piece: Piece) -> dict[str, Any]:
        """What a piece adds; the prompt is part of the first."""
        echoed, self._echoed = self._echoed, None
        tokens = [*(prompt_tokens(self._job) if echoed is not None else ()), *answer_tokens([piece])]
        return {
            "index": self._index,
            "text": (echoed or "") + (piece.text if piece.is_answer else ""),
            "logprobs": self._logprobs.lists(tokens) if self._logprobs else None,
            "finish_reason": finish_reason(piece.finish_reason),
            **proofs(piece, self._desk),
            **(token_ids([piece.token_id]) if self._has_token_ids else {}),
        }
