"""Response formats as token masks, through llguidance."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from typing import Any

import llguidance
import llguidance.numpy
import numpy as np

from samebits.engine.sampling import TokenMask
from samebits.loaders import Tokenizer
from samebits.server.errors import bad_request
from samebits.server.protocol import ResponseFormat

MAX_GRAMMAR_CHARS = 1 << 18


class _Vocabulary:
    """A tokenizer as llguidance asks for one: bytes of every token, special ones marked."""

    def __init__(self, tokenizer: Tokenizer, end: int) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id, self.bos_token_id = end, tokenizer.special.bos
        self.tokens = [tokenizer.decode_bytes([i]) for i in range(tokenizer.vocab_size)]
        self.special_token_ids = sorted(tokenizer.control_ids)

    def __call__(self, text: str | bytes) -> list[int]:
        as_text = text if isinstance(text, str) else text.decode("utf-8", "replace")
        return self._tokenizer.encode(as_text, add_special=False, parse_special=False)


class GrammarMask:
    """One answer's place in a grammar."""

    def __init__(self, matcher: llguidance.LLMatcher, vocab_size: int, end: int) -> None:
        self._matcher, self._vocab_size, self._end = matcher, vocab_size, end
        self._bits = llguidance.numpy.allocate_token_bitmask(1, vocab_size)

    def allowed(self) -> np.ndarray:
        if self._matcher.is_stopped():
            only_end = np.zeros(self._vocab_size, bool)
            only_end[self._end] = True
            return only_end
        llguidance.numpy.fill_next_token_bitmask(self._matcher, self._bits, 0)
        return np.unpackbits(self._bits.view(np.uint8), bitorder="little")[: self._vocab_size].astype(bool)

    def accept(self, token: int) -> None:
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)


class Grammars:
    """Compiles response formats for one model; the vocabulary is prepared when the first one comes."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, max_seconds: float) -> None:
        self._tokenizer, self._vocab_size, self._max_seconds = tokenizer, vocab_size, max_seconds
        special = tokenizer.special
        ends = (special.eot, special.eos, *sorted(special.end_ids))
        self._end = next((i for i in ends if i is not None), None)
        self._library: llguidance.LLTokenizer | None = None
        self._pool = ThreadPoolExecutor(1, "samebits-grammar")

    def mask_maker(self, wanted: ResponseFormat | None) -> Callable[[], TokenMask] | None:
        """What makes a mask for each sample; None for plain text. ApiError for a format that cannot be compiled."""
        if wanted is None or wanted.type == "text":
            return None
        if self._end is None:
            raise bad_request("response_format", wanted.type, "a model with an end-of-text token")
        grammar, end = _grammar_of(wanted), self._end
        library = self._pool.submit(self._prepared).result()  # once, and no fault of the format's
        try:
            matcher = self._pool.submit(llguidance.LLMatcher, library, grammar).result(self._max_seconds)
        except TookTooLong:
            raise bad_request("response_format", "a format that takes too long to compile", "a simpler one") from None
        if error := matcher.get_error():
            raise bad_request("response_format", " ".join(error.split())[:200], "a format that can be compiled")
        return lambda: GrammarMask(matcher.deep_copy(), self._vocab_size, end)

    def _prepared(self) -> llguidance.LLTokenizer:
        if self._library is None:
            wrapped = llguidance.TokenizerWrapper(_Vocabulary(self._tokenizer, self._end or 0))
            self._library = llguidance.LLTokenizer(wrapped, n_vocab=self._vocab_size)
        return self._library


def _grammar_of(wanted: ResponseFormat) -> str:
    """llguidance's text of a response format; ApiError where its parts are missing or too long."""
    if wanted.type == "regex":
        if not wanted.pattern:
            raise bad_request("response_format.pattern", "nothing", "a regular expression")
        source: Any = wanted.pattern
    elif wanted.type == "json_object":
        source = {"type": "object"}
    else:
        if wanted.json_schema is None or wanted.json_schema.schema_ is None:
            raise bad_request("response_format.json_schema", "nothing", "an object with a schema")
        source = wanted.json_schema.schema_
    text = source if isinstance(source, str) else json.dumps(source)
    if len(text) > MAX_GRAMMAR_CHARS:
        raise bad_request("response_format", f"{len(text)} characters", f"at most {MAX_GRAMMAR_CHARS}")
    try:
        if wanted.type == "regex":
            return str(llguidance.LLMatcher.grammar_from_regex(text))
        return str(llguidance.LLMatcher.grammar_from_json_schema(text))
    except (ValueError, RuntimeError) as error:
        raise bad_request("response_format", " ".join(str(error).split())[:200], "a format that can be read") from None
