"""The record of one answer. docs/receipts.md is its text, and has the schema that is made from here.

A receipt in JSON is canonical: keys sorted, no blanks, UTF-8, whole numbers in full and others in the fewest digits
that give the same double again. Nothing in it depends on load, time, machine or, in the portable tier, backend.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.json_scan import PART_BYTES, Scan, scan_part
from samebits.core.request_limits import (
    MAX_BANNED_WORDS,
    MAX_BIASES,
    MAX_GRAMMAR_CHARS,
    MAX_LISTED_IDS,
    MAX_STOP_CHARS,
    MAX_STOPS,
)
from samebits.loaders.source import parse_json
from samebits.receipts.kinds import (
    SIGNATURE_DIGITS,
    WHERE,
    Flag,
    Hex,
    OrNone,
    Pair,
    Real,
    Record,
    Several,
    Text,
    TooCostly,
    Whole,
    Word,
    plain,
    read_record,
    record_schema,
    stated,
)

VERSION = 1
MAX_BYTES = 64 << 20
MAX_TOKENS = 1 << 20
MAX_NAME = 1 << 10
MAX_CONTAINERS = MAX_BIASES + 64  # lists and objects in a receipt's JSON: pairs of biases, and a few more
MAX_MARKS = 3 * MAX_TOKENS + 4 * MAX_LISTED_IDS  # commas and colons: prompt, answer, links, lists of ids
FINISHED = ("stop", "length")  # ends that a replay recomputes
CUT = ("cancelled", "deadline")  # from outside: an answer ends where it happened to be
TIERS = ("invariant", "portable")  # at fast, bits depend on the batch: nothing could be checked
_ID = Whole(0, 2**31 - 1)
_IDS = Several(_ID, MAX_TOKENS)
_COUNT = Whole(0, 2**31 - 1)
_LISTED = Several(_ID, MAX_LISTED_IDS)
_TEXT = Text(MAX_STOP_CHARS)


@dataclass(frozen=True)
class Model:
    """What was run, by content; the name is for people."""

    name: str = stated(Text(MAX_NAME), "what the model is called where the answer was made; for people")
    weights_sha256: str = stated(Hex(), "of the model's file; of several files, of the lines that sha256sum prints")
    tokenizer_sha256: str | None = stated(OrNone(Hex()), "of what the file says of its tokenizer; null without one")
    chat_template_sha256: str | None = stated(
        OrNone(Hex()), "of the chat template's text, or of both texts if tools have their own; null without one"
    )


@dataclass(frozen=True)
class Numerics:
    """The arithmetic."""

    version: int = stated(Whole(1, 1 << 16), "of the portable arithmetic, docs/numerics.md")
    tier: str = stated(Word(TIERS), "what is promised of the bits")
    k_format: str = stated(Text(MAX_NAME), "of cached keys")
    v_format: str = stated(Text(MAX_NAME), "of cached values")
    max_positions: int | None = stated(
        Whole(1, 2**31 - 1),
        "positions that the rotary tables were made for; absent for models whose angles do not depend on it",
        default=None,
    )


@dataclass(frozen=True)
class Place:
    """Where an answer of a tier below portable was made: its bits are promised there alone."""

    backend: str = stated(Text(MAX_NAME), "its name")
    device: str = stated(Text(MAX_NAME), "as the backend calls it")
    build: str = stated(Text(MAX_NAME), "the version of Samebits, and what the backend found on the device")


@dataclass(frozen=True)
class Sampling:
    """All wishes that change an answer, named as SamplingParams names them."""

    max_tokens: int = stated(_COUNT, "the most tokens of the answer")
    temperature: float = stated(Real(), "0 takes the likeliest token")
    top_k: int = stated(_COUNT, "0 turns it off")
    top_p: float = stated(Real(), "1 turns it off")
    min_p: float = stated(Real(), "0 turns it off")
    repetition_penalty: float = stated(Real(), "1 turns it off")
    presence_penalty: float = stated(Real(), "0 turns it off")
    frequency_penalty: float = stated(Real(), "0 turns it off")
    logit_bias: tuple[tuple[int, float], ...] = stated(
        Several(Pair(_ID, Real()), MAX_BIASES), "token ids, ascending, each with what is added to its logit"
    )
    seed: int = stated(Whole(0, 2**64 - 1), "of the draws, also where it was chosen at random")
    n: int = stated(Whole(1, 1 << 10), "answers that were asked for")
    stop: tuple[str, ...] = stated(Several(_TEXT, MAX_STOPS), "texts that end the answer")
    ignore_eos: bool = stated(Flag(), "whether the model's own end tokens do not end it")
    min_tokens: int = stated(_COUNT, "the fewest tokens of the answer")
    stop_token_ids: tuple[int, ...] = stated(_LISTED, "further tokens that end it")
    include_stop: bool = stated(Flag(), "whether what ended the answer is part of its text")
    skip_special: bool = stated(Flag(), "whether tokens that are no text are left out of it")
    allowed_token_ids: tuple[int, ...] | None = stated(OrNone(_LISTED), "the only tokens that may be drawn; null: all")
    bad_words: tuple[str, ...] = stated(Several(_TEXT, MAX_BANNED_WORDS), "words that are not written")
    shown_ids: tuple[int, ...] = stated(_LISTED, "control tokens, ascending, whose text is part of the answer")


@dataclass(frozen=True)
class Grammar:
    """The form that an answer was held to."""

    kind: str = stated(Text(MAX_NAME), "json_schema, regex, lark, or grammar, which is Lark or GBNF")
    source: str = stated(Text(MAX_GRAMMAR_CHARS), "its text")
    library: str | None = stated(
        Text(MAX_NAME), "what compiled it, with its version and bounds; absent where that is not known", default=None
    )


@dataclass(frozen=True)
class Said:
    """The answer itself."""

    token_ids: tuple[int, ...] = stated(_IDS, "the tokens that were drawn")
    links: tuple[str, ...] = stated(
        Several(Hex(), MAX_TOKENS), "one per token: SHA-256 of the link before it and of the SHA-256 of its logits"
    )
    finish_reason: str = stated(Word(FINISHED + CUT), "why it ended; the last two are not recomputed")
    text_sha256: str = stated(Hex(), "of the answer's text in UTF-8, reasoning and all channels included")


@dataclass(frozen=True)
class Receipt:
    """One answer's. `sha256` and `signature` are None while nobody has asked for them."""

    model: Model = stated(Record(Model), "what was run")
    numerics: Numerics = stated(Record(Numerics), "the arithmetic")
    place: Place | None = stated(OrNone(Record(Place)), "where; null in the portable tier, which holds everywhere")
    context_len: int = stated(Whole(1, 2**31 - 1), "the most tokens that prompt and answer could have")
    prompt_ids: tuple[int, ...] = stated(_IDS, "the prompt's tokens")
    sampling: Sampling = stated(Record(Sampling), "what was asked for")
    sample_index: int = stated(Whole(0, 1 << 10), "which of `n` answers this is, from 0")
    grammar: Grammar | None = stated(OrNone(Record(Grammar)), "the form that the answer was held to, or null")
    answer: Said = stated(Record(Said), "what came of it")
    version: int = stated(Whole(VERSION, VERSION), "of this record", default=VERSION)
    sha256: str | None = stated(Hex(), "of the canonical JSON of all but this and the signature", default=None)
    signature: str | None = stated(
        Hex(SIGNATURE_DIGITS), "Ed25519, of the canonical JSON of all but itself, in hex", default=None
    )

    def __post_init__(self) -> None:
        """BadInput where the parts cannot belong together."""
        num_tokens, num_links = len(self.answer.token_ids), len(self.answer.links)
        if num_links != num_tokens:
            raise BadInput(WHERE, "answer.links", num_links, f"{num_tokens}, one per token of the answer")
        if self.sample_index >= self.sampling.n:
            raise BadInput(WHERE, "sample_index", self.sample_index, f"less than n, which is {self.sampling.n}")
        if not self.prompt_ids:
            raise BadInput(WHERE, "prompt_ids", "none", "at least one")
        if num_tokens > self.sampling.max_tokens:
            given = f"{num_tokens} tokens"
            raise BadInput(WHERE, "answer.token_ids", given, f"at most max_tokens, {self.sampling.max_tokens}")
        total = len(self.prompt_ids) + num_tokens
        if total > self.context_len:
            raise BadInput(WHERE, "context_len", self.context_len, f"at least {total}, all tokens that there are")
        positions = self.numerics.max_positions
        if positions is not None and positions < self.context_len:
            raise BadInput(WHERE, "numerics.max_positions", positions, f"at least context_len, {self.context_len}")
        biased, shown_ids = (token for token, _ in self.sampling.logit_bias), self.sampling.shown_ids
        for name, ids in (("logit_bias", biased), ("shown_ids", shown_ids)):
            if any(a >= b for a, b in pairwise(ids)):
                raise BadInput(WHERE, f"sampling.{name}", "ids in another order", "ascending ids, each once")
        is_portable = self.numerics.tier == "portable"
        if is_portable != (self.place is None):
            needed = "null: portable bits are the same everywhere" if is_portable else "where the answer was made"
            raise BadInput(WHERE, "place", "null" if self.place is None else repr(self.place.backend[:80]), needed)

    def computed_sha256(self) -> str:
        """Of what the receipt says now; `sha256` is what it said when it was made."""
        return hashlib.sha256(canonical(self._fields("sha256", "signature"))).hexdigest()

    def to_json(self) -> bytes:
        """The receipt in canonical JSON, with its own SHA-256; without a line's end."""
        return canonical(self.as_dict())

    def as_dict(self) -> dict[str, Any]:
        """What `to_json` writes."""
        left_out = () if self.signature else ("signature",)
        return {**self._fields(*left_out), "sha256": self.sha256 or self.computed_sha256()}

    def signed_bytes(self) -> bytes:
        """What a signature is made of."""
        return replace(self, signature=None).to_json()

    def _fields(self, *left_out: str) -> dict[str, Any]:
        return {name: value for name, value in plain(self).items() if name not in left_out}


def canonical(value: Any) -> bytes:
    """Canonical JSON, as this file's text says."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")  # a stop string may hold what no text in UTF-8 does


def from_json(data: bytes) -> Receipt:
    """The receipt in this JSON, in any layout; BadInput, a line, for anything else."""
    if len(data) > MAX_BYTES:
        raise BadInput(WHERE, "size", f"{len(data)} bytes", f"at most {MAX_BYTES}")
    _check_size(data)
    found = parse_json(data, WHERE)
    version = found.get("version")
    if version != VERSION or type(version) is not int:
        given = "nothing" if version is None else repr(version)[:80]
        raise BadInput(WHERE, "version", given, f"{VERSION}, the version that this program reads")
    if found.get("sha256") is None:
        raise BadInput(WHERE, "sha256", "nothing", "the receipt's own SHA-256")
    return read_record(Receipt, found)


def _check_size(data: bytes) -> None:
    """Raise TooCostly for JSON with more values than any receipt has. No value is made for that."""
    state, numbers = Scan(), np.frombuffer(data, np.uint8)
    for start in range(0, len(numbers), PART_BYTES):
        scan_part(numbers[start : start + PART_BYTES], state)
        if state.num_containers > MAX_CONTAINERS:
            raise TooCostly(WHERE, "JSON", f"more than {MAX_CONTAINERS} lists and objects", "fewer")
        if state.num_marks > MAX_MARKS:
            raise TooCostly(WHERE, "JSON", f"more than {MAX_MARKS} values", "fewer")


def schema() -> dict[str, Any]:
    """JSON Schema of a receipt."""
    made = record_schema(Receipt)
    made["required"] += ["version", "sha256"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A receipt of one answer of Samebits",
        **made,
    }
