"""Results and errors of `LLM`: answers, their pieces, and answers in the shape that vLLM's users know."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.engine.answer import Completion, Piece
from samebits.engine.job import RequestFailed

__all__ = ["Completion", "Piece", "RequestFailed", "RequestOutput"]


@dataclass(frozen=True)
class RequestOutput:
    """The answers to one prompt.

    prompt   the prompt's text, or None if it was given as token ids
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[Completion, ...]
    finished: bool = True
