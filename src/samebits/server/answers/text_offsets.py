"""Where tokens begin in a text, in characters: a token may be a part of one, and what is no UTF-8 becomes U+FFFD."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from samebits.engine.answer import FINAL
from samebits.engine.sampling import SamplingParams
from samebits.engine.text import AnswerText
from samebits.loaders import Tokenizer


class AnswerOffsets:
    """Gives the offset of each token of an answer, in order.

    Tokens that a stop string cut off are counted as if they were text, so that a stream need not know of the cut
    before it comes; they have offsets at or beyond the end of the text.
    """

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams, num_chars: int) -> None:
        """num_chars: of the text before the answer."""
        self._text, self._num_chars = AnswerText(tokenizer, replace(params, stop=())), num_chars

    def push(self, token: int) -> int:
        """Return the offset of the character that the token begins or continues."""
        offset = self._num_chars + self._text.breaks(token)
        text, _ = self._text.push(token)
        if self._text.channel in (None, FINAL) and self._text.recipient is None:
            self._num_chars += len(text)
        return offset


def prompt_offsets(tokenizer: Tokenizer, ids: Sequence[int]) -> Iterator[int]:
    """Yield the offsets of a prompt's tokens in the text that `Tokenizer.decode` gives without control tokens."""
    stream, num_chars = tokenizer.stream(skip_special=True), 0
    is_cut = tokenizer.adds_space_prefix  # `decode` takes off the space ahead of the text
    for token in ids:
        yield num_chars + stream.breaks(token)
        text = stream.push(token)
        if is_cut and text:
            text, is_cut = text.removeprefix(" "), False
        num_chars += len(text)
