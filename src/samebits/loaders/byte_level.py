"""GPT-2's way to write any byte as a printable character, and back."""

from __future__ import annotations

SPACE_MARK = "\N{LOWER ONE EIGHTH BLOCK}"  # how SentencePiece writes a space


def _byte_chars() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(b): b for b in printable}
    others = [b for b in range(256) if b not in set(printable)]
    return table | {chr(0x100 + i): b for i, b in enumerate(others)}


BYTE_OF_CHAR = _byte_chars()
CHARS = frozenset(BYTE_OF_CHAR)


def byte_level_piece(text: str) -> bytes:
    """The bytes a byte-level token stands for; characters outside the table stand for themselves."""
    if CHARS.issuperset(text):
        return bytes(map(BYTE_OF_CHAR.__getitem__, text))
    return b"".join(bytes([BYTE_OF_CHAR[c]]) if c in CHARS else c.encode("utf-8") for c in text)


def byte_token_value(text: str) -> int | None:
    """The byte that "<0x0A>" stands for; None for any other text."""
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        try:
            return int(text[3:5], 16)
        except ValueError:
            return None
    return None


def sentence_piece(text: str) -> bytes:
    """The bytes a SentencePiece token stands for."""
    value = byte_token_value(text)
    return bytes([value]) if value is not None else text.replace(SPACE_MARK, " ").encode("utf-8")
