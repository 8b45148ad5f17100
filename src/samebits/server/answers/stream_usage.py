"""The `usage` field of OpenAI's streams: that of the request in the last chunk, that of a choice in every chunk."""

from __future__ import annotations

from collections import Counter
from typing import Any

from samebits.engine.answer import Piece
from samebits.server.bodies.openai import StreamOptions


def token_counts(num_prompt_tokens: int, num_answer_tokens: int) -> dict[str, int]:
    """Return the numbers of tokens in OpenAI's words."""
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_answer_tokens,
        "total_tokens": num_prompt_tokens + num_answer_tokens,
    }


class StreamUsage:
    """Counts the tokens that chunks bring, as `stream_options` asks.

    is_included   whether a last chunk has the usage of the whole request
    """

    def __init__(self, options: StreamOptions | None) -> None:
        self._is_continuous = bool(options and options.continuous_usage_stats)
        self.is_included = bool(options and options.given("include_usage", self._is_continuous))
        self._num_tokens = Counter[int]()  # by choice

    def of_chunk(self, choice: int, num_prompt_tokens: int, piece: Piece | None = None) -> dict[str, Any]:
        """Count a piece of a choice. Return the `usage` field of its chunks, or no field if no usage is asked for.

        The field is null unless every chunk has its usage: then, as in vLLM, it counts the prompt and the tokens of
        this choice alone.
        """
        if piece is not None and piece.token_id is not None:
            self._num_tokens[choice] += 1
        if not self.is_included:
            return {}
        counts = token_counts(num_prompt_tokens, self._num_tokens[choice])
        return {"usage": counts if self._is_continuous else None}
