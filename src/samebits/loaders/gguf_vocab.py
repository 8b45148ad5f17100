"""The vocabulary in a GGUF file's metadata, checked before anything is built from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, overload

import numpy as np

from samebits.loaders.fields import Fields, shown
from samebits.loaders.limits import MAX_VOCAB
from samebits.loaders.texts import Texts, texts_of

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
PARSED_TYPES = (UNKNOWN, CONTROL, USER_DEFINED)
PREFIX = "tokenizer.ggml."
ID_KEYS = {"bos": "bos_token_id", "eos": "eos_token_id", "eot": "eot_token_id", "pad": "padding_token_id"}
ID_KEYS |= {"eom": "eom_token_id", "unk": "unknown_token_id"}
UNNEEDED_NAMES = ("pad", "unk")
MAX_ID = (1 << 32) - 1
ENDS_KEY, MAX_ENDS = "eos_token_ids", 64
MAX_PARSED = 1 << 14  # every encode looks for each of them


def text_of(texts: Texts, token_id: int) -> str:
    """A token's text; one without any is named as llama.cpp does it."""
    return texts[token_id] or f"[EMPTY_{token_id}]"


@dataclass(frozen=True)
class Vocab:
    """texts: by id; types: ggml's token type by id, uint8; named: special ids or None."""

    fields: Fields
    texts: Texts
    types: np.ndarray
    named: dict[str, int | None]

    def text(self, token_id: int) -> str:
        return text_of(self.texts, token_id)

    def ids(self) -> dict[str, int]:
        """Every text's id, anew at each call; BadInput for a text that two tokens have."""
        ids = dict(zip(self.texts, range(len(self.texts)), strict=True))
        if "" in ids:
            ids = {self.text(i): i for i in range(len(self.texts))}
        if len(ids) < len(self.texts):
            first = next(i for i in range(len(self.texts)) if ids[self.text(i)] != i)
            text = self.text(first)
            raise self.fields.fail("tokens", f"{shown(text)} as {first} and {ids[text]}", "every token once")
        return ids

    def named_texts(self) -> Texts:
        """The texts, with names for those that are empty."""
        if self.texts.lengths().all():
            return self.texts
        return texts_of(map(self.text, range(len(self.texts))))

    def max_token_bytes(self, of_text: Callable[[str], bytes]) -> int:
        """Bytes of text that one token may stand for, at most; `of_text` gives an ordinary token's.

        Never more than a token's own text has: so those with the longest texts decide.
        """
        lengths, longest = self.named_texts().lengths(), 1
        for i in np.argsort(-lengths):
            if lengths[i] <= longest:
                break
            is_ordinary = self.types[i] not in (*PARSED_TYPES, BYTE)
            longest = max(longest, len(of_text(self.text(i))) if is_ordinary else int(lengths[i]))
        return longest

    def of_types(self, *types: int) -> list[int]:
        """The ids of some types, in order."""
        return [int(i) for i in np.flatnonzero(np.isin(self.types, types))]

    def listed_ends(self) -> list[int]:
        """Return the end ids that Ollama's files list beside the one of GGUF's own key. Raise BadInput for others."""
        value = self.fields.get(ENDS_KEY)
        if value is None:
            return []
        is_ids = isinstance(value, np.ndarray) and value.dtype.kind in "iu" and len(value) <= MAX_ENDS
        if not is_ids or ((value < 0) | (value >= len(self.texts))).any():
            raise self.fields.fail(ENDS_KEY, shown(value), f"at most {MAX_ENDS} ids below {len(self.texts)}")
        return [int(i) for i in value]

    @property
    def controls(self) -> frozenset[int]:
        return frozenset(self.of_types(CONTROL, UNKNOWN))

    @property
    def user_defined(self) -> frozenset[int]:
        return frozenset(self.of_types(USER_DEFINED))

    def parsed(self) -> list[tuple[str, int, bool]]:
        """Tokens found in text before anything else, longest first: text, id, whether only when asked for."""
        found = [(self.text(i), i, bool(self.types[i] != USER_DEFINED)) for i in self.of_types(*PARSED_TYPES)]
        if len(found) > MAX_PARSED:
            raise self.fields.fail("token_type", f"{len(found)} special tokens", f"at most {MAX_PARSED}")
        return sorted(found, key=lambda item: -len(item[0].encode("utf-8")))


class Pieces(Sequence[bytes]):
    """The bytes of every id, made when asked for, so that only texts and types are kept of a vocabulary."""

    def __init__(self, vocab: Vocab, of_text: Callable[[str], bytes]) -> None:
        """`of_text` gives the bytes that an ordinary token's text stands for."""
        self._texts, self._types, self._of_text = vocab.texts, vocab.types, of_text

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        kind, text = self._types[index], text_of(self._texts, index)
        if kind in (NORMAL, BYTE):
            return self._of_text(text)
        return b"" if kind in (0, UNUSED) else text.encode("utf-8")


def read_vocab(metadata: Mapping[str, Any], where: str) -> Vocab:
    """The vocabulary; BadInput for wrong types, lengths that differ or ids out of range."""
    fields = Fields(metadata, where, PREFIX)
    texts = strings(fields, "tokens")
    if not 1 <= len(texts) <= MAX_VOCAB:
        raise fields.fail("tokens", len(texts), f"1 to {MAX_VOCAB} tokens")
    types = numbers(fields, "token_type", len(texts))
    if types is None:
        types = np.full(len(texts), NORMAL)
    types = types.astype(np.int64)
    if (is_wrong := (types < 0) | (types > BYTE)).any():
        raise fields.fail("token_type", types[is_wrong][0], f"types from 0 to {BYTE}")
    last = len(texts) - 1
    named = {name: _special_id(fields, name, key, last) for name, key in ID_KEYS.items()}
    return Vocab(fields, texts, types.astype(np.uint8), named)


def _special_id(fields: Fields, name: str, key: str, last: int) -> int | None:
    """Return the id of a special token, None if the file names none or one out of range that no answer needs."""
    if name not in UNNEEDED_NAMES:
        return cast(int | None, fields.integer(key, 0, last, None))
    stated = cast(int | None, fields.integer(key, -1, MAX_ID, None))
    return stated if stated is not None and 0 <= stated <= last else None


def strings(fields: Fields, key: str) -> Texts:
    """A required array of strings."""
    value = fields.get(key)
    if not isinstance(value, Texts):
        raise fields.fail(key, "nothing" if value is None else shown(value), "an array of strings")
    return value


def numbers(fields: Fields, key: str, length: int) -> np.ndarray | None:
    """An optional array of finite numbers, one for each token."""
    value = fields.get(key)
    if value is None:
        return None
    if not isinstance(value, np.ndarray) or value.dtype == np.bool_:
        raise fields.fail(key, shown(value), "an array of numbers")
    if len(value) != length:
        raise fields.fail(key, f"{len(value)} values", f"one for each of the {length} tokens")
    if not np.isfinite(value).all():
        raise fields.fail(key, "NaN or Inf", "finite numbers")
    return value
