"""Properties of added tokens for which GGUF has no key of its own: white space that they strip, and a Metaspace."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.loaders.byte_level import SPACE_MARK
from samebits.loaders.special_parts import (
    LEFT_KEY,
    METASPACE_KEY,
    METASPACE_SCHEMES,
    PHI3_NAMES,
    PHI3_NEEDS,
    RIGHT_KEY,
    is_phi3,
    phi3_right,
)

Added = Sequence[Mapping[str, Any]]


def strip_metadata(added: Added, where: str) -> dict[str, np.ndarray]:
    """Return our keys for the white space that added tokens take off; none if no token does."""
    if (word := next((token for token in added if token.get("single_word")), None)) is not None:
        given = f"single_word of {word['content'][:40]!r}"
        raise BadInput(where, "added_tokens", given, "tokens that are found inside words too: GGUF has no others")
    ids = {key: [t["id"] for t in added if t.get(name)] for key, name in ((LEFT_KEY, "lstrip"), (RIGHT_KEY, "rstrip"))}
    return {key: np.array(found, np.int32) for key, found in ids.items()} if any(ids.values()) else {}


def metaspace_metadata(source: Mapping[str, Any]) -> dict[str, str]:
    """Return our key for the space that a tokenizer.json's Metaspace puts in front of texts; none without Metaspace.

    GGUF's own key puts it behind every special token, and in front of spaces too.
    """
    pre = source.get("pre_tokenizer") or {}
    scheme = pre.get("prepend_scheme")
    return {METASPACE_KEY: scheme} if pre.get("type") == "Metaspace" and scheme in METASPACE_SCHEMES else {}


def name_for_readers(name: str, added: Added) -> str:
    """Return a model's name by which llama.cpp strips what the added tokens strip: Phi-3's, or nothing."""
    special = {token["content"]: token["id"] for token in added}
    stripped = {token["id"] for token in added if token.get("rstrip")}
    is_rule = stripped == phi3_right(special) and special.keys() >= set(PHI3_NEEDS)
    if not is_rule:
        return re.sub("|".join(PHI3_NAMES), "phi 3", name, flags=re.IGNORECASE)
    return name if is_phi3(name) else f"phi-3 {name}"


def texts_with(added: Added, is_scored: bool) -> Iterator[str]:
    """Yield a text for every added token: among words, beside white space and next to another one.

    SentencePiece's mark in a token that is not special is a space in texts.
    """
    marks = [is_scored and not token.get("special") for token in added]
    contents = [
        t["content"].replace(SPACE_MARK, " ") if mark else t["content"] for t, mark in zip(added, marks, strict=True)
    ]
    for content, other in zip(contents, [*contents[1:], *contents[:1]], strict=True):
        yield f"word{content}next  {content} \n a {content}{other}"
