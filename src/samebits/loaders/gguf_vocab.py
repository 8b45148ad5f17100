"""The vocabulary in a GGUF file's metadata, checked before anything is built from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from samebits.loaders.fields import Fields, shown
from samebits.loaders.limits import MAX_VOCAB

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
PARSED_TYPES = (UNKNOWN, CONTROL, USER_DEFINED)
PREFIX = "tokenizer.ggml."
ID_KEYS = {"bos": "bos_token_id", "eos": "eos_token_id", "eot": "eot_token_id", "pad": "padding_token_id"}
ID_KEYS["unk"] = "unknown_token_id"
MAX_PARSED = 1 << 14  # every encode looks for each of them


@dataclass(frozen=True)
class Vocab:
    """tokens: unique texts by id; types: ggml's token type by id; ids: the other way; named: special ids or None."""

    fields: Fields
    tokens: list[str]
    types: list[int]
    ids: dict[str, int]
    named: dict[str, int | None]

    @property
    def controls(self) -> frozenset[int]:
        return frozenset(i for i, t in enumerate(self.types) if t in (CONTROL, UNKNOWN))

    @property
    def user_defined(self) -> frozenset[int]:
        return frozenset(i for i, t in enumerate(self.types) if t == USER_DEFINED)

    def parsed(self) -> list[tuple[str, int, bool]]:
        """Tokens found in text before anything else, longest first: text, id, whether only when asked for."""
        found = [(self.tokens[i], i, t != USER_DEFINED) for i, t in enumerate(self.types) if t in PARSED_TYPES]
        if len(found) > MAX_PARSED:
            raise self.fields.fail("token_type", f"{len(found)} special tokens", f"at most {MAX_PARSED}")
        return sorted(found, key=lambda item: -len(item[0].encode("utf-8")))


def read_vocab(metadata: Mapping[str, Any], where: str) -> Vocab:
    """The vocabulary; BadInput for wrong types, lengths that differ, duplicates or ids out of range."""
    fields = Fields(metadata, where, PREFIX)
    tokens = strings(fields, "tokens")
    if not 1 <= len(tokens) <= MAX_VOCAB:
        raise fields.fail("tokens", len(tokens), f"1 to {MAX_VOCAB} tokens")
    tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(tokens)]  # as llama.cpp names them
    ids: dict[str, int] = {}
    for i, text in enumerate(tokens):
        if ids.setdefault(text, i) != i:
            raise fields.fail("tokens", f"{shown(text)} as {ids[text]} and {i}", "every token once")
    types = numbers(fields, "token_type", len(tokens))
    type_list = [NORMAL] * len(tokens) if types is None else types.astype(np.int64).tolist()
    if wrong := next((t for t in type_list if not 0 <= t <= BYTE), None):
        raise fields.fail("token_type", wrong, f"types from 0 to {BYTE}")
    last = len(tokens) - 1
    named = {name: fields.integer(key, 0, last, None) for name, key in ID_KEYS.items()}
    return Vocab(fields, tokens, type_list, ids, named)


def strings(fields: Fields, key: str) -> list[str]:
    """A required array of strings."""
    value = fields.get(key)
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
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
