"""What every tokenizer offers: text to ids, ids to bytes, and the ids with a meaning."""

from __future__ import annotations

import codecs
import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samebits.core.errors import BadInput

if TYPE_CHECKING:
    import tokenizers  # many models do without it

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # one text at a time: its threads would only warn of forks
IDS_AT_ONCE = 1 << 15  # become Python's numbers in one go, which holds the interpreter's lock

# Texts that end a turn, in the order in which they are taken for `eot` where a file does not name one.
END_TEXTS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "</s>",
    "<eos>",
    "<|eom_id|>",
)
# Where a vocabulary has all of these, a turn is several messages: "<|end|>" ends a message, and the others a turn.
MARK_TEXTS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")
TURN_ENDS = ("<|return|>", "<|call|>")
NOT_EOT = ("</s>", "<eos>", "<|eom_id|>")  # these end a generation, but not as a turn's end


class TextTooLong(BadInput):
    """A text of more tokens than asked for, or so long that it must have more."""


@dataclass(frozen=True)
class MessageMarks:
    """Ids around the messages of a turn: start ROLE channel NAME message TEXT end."""

    start: int
    channel: int
    message: int
    end: int


@dataclass(frozen=True)
class SpecialTokens:
    """Ids with a meaning, None where there is none. Generation stops at any of `end_ids`."""

    bos: int | None = None
    eos: int | None = None
    eot: int | None = None
    pad: int | None = None
    unk: int | None = None
    end_ids: frozenset[int] = frozenset()
    marks: MessageMarks | None = None


def find_special(
    vocab: Mapping[str, int], candidates: frozenset[int], named: Mapping[str, int | None], more_ends: Iterable[int] = ()
) -> SpecialTokens:
    """The special tokens from those a file names, completed by the usual texts among the candidates."""
    has_marks = all(vocab.get(text) in candidates for text in (*MARK_TEXTS, TURN_ENDS[0]))
    marks = MessageMarks(*(vocab[text] for text in MARK_TEXTS)) if has_marks else None
    end_texts = (*TURN_ENDS, *END_TEXTS) if marks else END_TEXTS
    by_text = {text: vocab[text] for text in end_texts if vocab.get(text) in candidates}
    eot = named.get("eot")
    if marks:
        del by_text["<|end|>"]
        eot = vocab[TURN_ENDS[0]]
    if eot is None:
        eot = next((i for text, i in by_text.items() if text not in NOT_EOT), None)
    ends = {*by_text.values(), *more_ends, named.get("eos"), named.get("eom"), eot}
    return SpecialTokens(
        named.get("bos"),
        named.get("eos"),
        eot,
        named.get("pad"),
        named.get("unk"),
        frozenset(i for i in ends if i is not None),
        marks,
    )


@contextmanager
def library_guard(where: str, argument: str, needed: str) -> Iterator[None]:
    """Turns whatever the `tokenizers` library raises into BadInput."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # its panics are no Exceptions
        raise BadInput(where, argument, ascii(" ".join(str(error).split())[:200])[1:-1], needed) from None


def library_ids(library: tokenizers.Tokenizer, text: str, add_special: bool) -> array[int]:
    """The ids the `tokenizers` library gives, without the interpreter's lock; BadInput where it fails."""
    with library_guard("encode", "text", "text that the tokenizer can take"):
        (found,) = library.encode_batch_fast([text], add_special_tokens=add_special)  # `encode` would keep the lock
        return array("i", found.ids)


class Tokenizer(ABC):
    """Text to token ids and back. Immutable, so threads may share it.

    pieces           the bytes of every id; empty for an id that stands for nothing
    controls         ids that `skip_special` leaves out
    max_token_bytes  of text that one token stands for
    """

    def __init__(
        self,
        where: str,
        pieces: Sequence[bytes],
        controls: frozenset[int],
        special: SpecialTokens,
        max_token_bytes: int,
    ) -> None:
        self.where = where
        self.special = special
        self.max_token_bytes = max_token_bytes
        self._pieces = pieces
        self._controls = controls
        self._num_ids = len(pieces)

    kind = "unknown"
    adds_space_prefix = False
    max_text_bytes = 1 << 30  # that `encode` takes

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    @property
    def num_ids(self) -> int:
        """Ids that may be decoded: ours, and those that the model has beyond them, which have no text."""
        return self._num_ids

    @property
    def control_ids(self) -> frozenset[int]:
        """Ids that are no text: begin and end of things, unknown."""
        return self._controls

    @abstractmethod
    def _encode(self, text: str, add_special: bool, parse_special: bool) -> array[int]: ...

    def encode(
        self, text: str, add_special: bool = True, parse_special: bool = True, max_tokens: int | None = None
    ) -> list[int]:
        """The ids of `text`.

        add_special    put the begin and end tokens around it where the model asks for them
        parse_special  read "<|im_end|>" and the like as the one token they name, not as text
        max_tokens     TextTooLong for more; a text that cannot have so few is not even looked at
        """
        if not isinstance(text, str):
            raise BadInput("encode", "text", type(text).__name__, "a string")
        num_chars, (max_bytes, reason) = len(text), self.max_bytes(max_tokens)
        num_bytes = num_chars if num_chars > max_bytes else _utf8_size(text)
        if num_bytes > max_bytes:
            raise TextTooLong("encode", "text", f"{num_bytes} bytes", f"at most {max_bytes}{reason}")
        ids = self._encode(text, add_special, parse_special)
        if max_tokens is not None and len(ids) > max_tokens:
            raise TextTooLong("encode", "text", f"{len(ids)} tokens", f"at most {max_tokens}")
        found: list[int] = []
        for start in range(0, len(ids), IDS_AT_ONCE):
            found += ids[start : start + IDS_AT_ONCE].tolist()
        return found

    def max_bytes(self, max_tokens: int | None) -> tuple[int, str]:
        """Bytes of text that `max_tokens` can hold and `encode` takes, and the reason for a message."""
        if max_tokens is None or max_tokens * self.max_token_bytes >= self.max_text_bytes:
            return self.max_text_bytes, ""
        reason = f", what {max_tokens} tokens of {self.max_token_bytes} bytes can hold"
        return max_tokens * self.max_token_bytes, reason

    def decode_bytes(self, ids: Iterable[int], skip_special: bool = False) -> bytes:
        """The bytes of the ids, one after another: joins of parts are parts of the join."""
        parts: list[bytes] = []
        known: dict[int, bytes] = {}  # to make a piece takes longer than to find it
        for i in ids:
            piece = known.get(i)
            if piece is None:
                if not 0 <= i < self._num_ids:
                    raise BadInput(self.where, "token id", i, f"0 to {self._num_ids - 1}")
                is_shown = i < len(self._pieces) and not (skip_special and i in self._controls)
                piece = known[i] = self._pieces[i] if is_shown else b""
            parts.append(piece)
        return b"".join(parts)

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """The text of a whole sequence; bytes that are not UTF-8 become U+FFFD.

        The space that `encode` puts before a text is taken off again.
        """
        text = self.decode_bytes(ids, skip_special).decode("utf-8", "replace")
        return text.removeprefix(" ") if self.adds_space_prefix else text

    def stream(self, skip_special: bool = False, shown_ids: frozenset[int] = frozenset()) -> TextStream:
        """A decoder for ids that come one at a time; `shown_ids` are not skipped."""
        return TextStream(self, skip_special, shown_ids)

    def control_id(self, text: str) -> int | None:
        """The id of the control token with this text, None where there is none."""
        ids = self.encode(text, add_special=False)
        return ids[0] if len(ids) == 1 and ids[0] in self._controls else None

    def token_text(self, token_id: int | None) -> str:
        """A special token's own text, for templates; empty for None."""
        return "" if token_id is None else self.decode_bytes([token_id]).decode("utf-8", "replace")

    @property
    def special_texts(self) -> Mapping[str, str]:
        """Texts of special tokens by the names that chat templates read."""
        special = self.special
        ids = {"bos_token": special.bos, "eos_token": special.eos, "pad_token": special.pad, "unk_token": special.unk}
        named = {name: self.token_text(i) for name, i in ids.items() if i is not None}
        return {"bos_token": "", "eos_token": "", **named}  # empty ones as in llama.cpp

    def fit_model(self, vocab_size: int) -> None:
        """Takes the model's ids for those there are, once, at load; BadInput when an id of ours is not among them.

        Models may have more, rows of their embedding that only fill it up: those stand for nothing.
        """
        if self.vocab_size > vocab_size:
            needed = f"at most the {vocab_size} rows of the model's embedding"
            raise BadInput(self.where, "tokenizer", f"{self.vocab_size} tokens", needed)
        self._num_ids = vocab_size


def _utf8_size(text: str) -> int:
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise BadInput("encode", "text", f"a lone surrogate at {error.start}", "text that has a UTF-8 form") from None


class TextStream:
    """Turns ids into text as they come, holding back bytes that are not yet a whole character."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool, shown_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._skip_special, self._shown_ids = skip_special, shown_ids
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, *ids: int) -> str:
        """The text that became complete with these ids; often empty."""
        skips = self._skip_special and self._shown_ids.isdisjoint(ids)
        if skips or not self._skip_special:
            return self._decoder.decode(self._tokenizer.decode_bytes(ids, skips))
        parts = (self._tokenizer.decode_bytes([i], i not in self._shown_ids) for i in ids)
        return self._decoder.decode(b"".join(parts))

    def breaks(self, token: int) -> bool:
        """Return whether bytes are held back that this token does not continue: they become U+FFFD ahead of it."""
        held = self._decoder.getstate()[0]
        skips = self._skip_special and token not in self._shown_ids
        first = self._tokenizer.decode_bytes([token], skips)[:1]
        if not held or not first:
            return False
        try:
            codecs.utf_8_decode(held + first, "strict", False)
        except UnicodeDecodeError:
            return True
        return False

    def finish(self) -> str:
        """What was held back, incomplete characters as U+FFFD."""
        return self._decoder.decode(b"", final=True)
