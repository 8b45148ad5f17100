"""What a tokenizer.json may hold, checked before the `tokenizers` library builds anything from it.

The library ends the process when it runs out of memory, and nothing ends it when a pattern backtracks. So only parts
that we know are let through, and together they may make a text only so much longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from samebits.core.errors import BadInput
from samebits.loaders.fields import Fields, shown
from samebits.loaders.limits import MAX_MERGES, MAX_VOCAB
from samebits.loaders.split_patterns import SPLIT_PATTERNS

MAX_ADDED_TOKENS, MAX_ADDED_BYTES = 1 << 14, 1024
MAX_STEPS, MAX_NESTING = 16, 4
MAX_LITERAL_BYTES = 64  # of a pattern to find, or of what is put in its place
MAX_TEMPLATE_PIECES, MAX_PIECE_IDS = 16, 16
MAX_GROWTH = 64.0
LISTS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}
Step = Callable[[Fields], float]


def check_tokenizer_json(content: Mapping[str, Any], where: str) -> float:
    """How many times longer than a text its bytes can become; BadInput for what is unknown or without bounds."""
    fields = Fields(content, where)
    _check_model(fields.mapping("model"))
    _check_added(fields)
    growth = 1.0
    for name, known in KNOWN.items():
        for step in _steps(fields, name):
            kind = step.text("type")
            if kind not in known:
                raise step.fail("type", shown(kind), f"one of {', '.join(sorted([*known, 'Sequence']))}")
            growth *= known[kind](step)
    if growth > MAX_GROWTH:
        needed = f"at most {MAX_GROWTH:g} times its bytes"
        raise BadInput(where, "normalizer and pre_tokenizer", f"a text grown {growth:.3g} times", needed)
    return growth


def _steps(fields: Fields, name: str) -> list[Fields]:
    """The steps of a part, in order, out of sequences in sequences."""
    found: list[Fields] = []

    def visit(value: Any, depth: int) -> None:
        where = f"{fields.where}: {name}"
        if not isinstance(value, dict):
            raise fields.fail(name, shown(value), "an object")
        if value.get("type") != "Sequence":
            found.append(Fields(value, where))
        elif not isinstance(parts := value.get(LISTS[name]), list) or len(parts) > MAX_STEPS or depth == MAX_NESTING:
            needed = f"at most {MAX_STEPS} steps, {MAX_NESTING} deep"
            raise BadInput(where, LISTS[name], shown(parts), needed)
        else:
            for part in parts:
                visit(part, depth + 1)

    if fields.has(name):
        visit(fields.get(name), 0)
    if len(found) > MAX_STEPS:
        raise fields.fail(name, f"{len(found)} steps", f"at most {MAX_STEPS}")
    return found


def _check_model(model: Fields) -> None:
    kind = model.text("type", "BPE" if model.has("merges") else "nothing")
    if kind != "BPE":
        raise model.fail("type", shown(kind), "BPE")
    if model.number("dropout", 0, 0, 0):
        raise model.fail("dropout", model.get("dropout"), "none: tokens must not depend on chance")
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.text(key, ""):
            raise model.fail(key, shown(model.get(key)), "none")
    model.text("unk_token", "")
    vocab, merges = model.get("vocab"), model.get("merges")
    if not isinstance(vocab, dict) or len(vocab) > MAX_VOCAB:
        raise model.fail("vocab", shown(vocab), f"an object of at most {MAX_VOCAB} tokens")
    if not isinstance(merges, list) or len(merges) > MAX_MERGES:
        raise model.fail("merges", shown(merges), f"a list of at most {MAX_MERGES}")
    if (wrong := next((i for i in vocab.values() if not _is_id(i)), None)) is not None:
        raise model.fail("vocab", shown(wrong), f"ids from 0 to {MAX_VOCAB - 1}")
    if (wrong := next((m for m in merges if not _is_merge(m)), None)) is not None:
        raise model.fail("merges", shown(wrong), "two texts each")


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 <= value < MAX_VOCAB


def _is_merge(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) == 2 and all(isinstance(part, str) for part in value)
    return isinstance(value, str)


def _check_added(fields: Fields) -> None:
    added = fields.get("added_tokens") or []
    if not isinstance(added, list) or len(added) > MAX_ADDED_TOKENS:
        raise fields.fail("added_tokens", shown(added), f"a list of at most {MAX_ADDED_TOKENS}")
    for token in added:
        content = token.get("content") if isinstance(token, dict) else None
        if not isinstance(content, str) or not 1 <= len(content.encode("utf-8", "replace")) <= MAX_ADDED_BYTES:
            raise fields.fail("added_tokens", shown(content), f"objects with a content of 1 to {MAX_ADDED_BYTES} bytes")
        if not _is_id(token.get("id")):
            raise fields.fail("added_tokens", shown(token.get("id")), f"ids from 0 to {MAX_VOCAB - 1}")


def _literal(step: Fields, key: str, value: Any) -> int:
    """The bytes of a short text."""
    num_bytes = len(value.encode("utf-8", "replace")) if isinstance(value, str) else MAX_LITERAL_BYTES + 1
    if num_bytes > MAX_LITERAL_BYTES:
        raise step.fail(key, shown(value), f"a text of at most {MAX_LITERAL_BYTES} bytes")
    return num_bytes


def _pattern(step: Fields) -> int:
    """The least bytes that a step's pattern matches; regular expressions must be among those we know."""
    pattern = step.mapping("pattern")
    if not pattern.has("Regex"):
        if (num_bytes := _literal(step, "pattern", pattern.get("String"))) == 0:
            raise step.fail("pattern", "an empty text", "one that matches something")
        return num_bytes
    if (regex := pattern.get("Regex")) not in SPLIT_PATTERNS:
        raise step.fail("pattern", shown(regex), "a text, or a regular expression of a model family that we know")
    return 1


def _replace(step: Fields) -> float:
    return max(1.0, _literal(step, "content", step.get("content")) / _pattern(step))


def _split(step: Fields) -> float:
    _pattern(step)
    return 1.0


def _metaspace(step: Fields) -> float:
    """A mark for each space, and one in front of each stretch."""
    return 1.0 + _literal(step, "replacement", step.get("replacement"))


def _byte_level(step: Fields) -> float:
    """Two bytes for one, and perhaps a space in front of each stretch."""
    return 4.0 if step.flag("add_prefix_space", True) else 2.0


def _template(step: Fields) -> float:
    """The text once, between special tokens."""
    for name in ("single", "pair"):
        pieces = step.get(name)
        if not isinstance(pieces, list) or len(pieces) > MAX_TEMPLATE_PIECES:
            raise step.fail(name, shown(pieces), f"a list of at most {MAX_TEMPLATE_PIECES} pieces")
        sequences = [piece for piece in pieces if isinstance(piece, dict) and "Sequence" in piece]
        if name == "single" and len(sequences) != 1:
            raise step.fail(name, f"{len(sequences)} times the text", "the text once")
    for token in step.mapping("special_tokens").values.values():
        ids = token.get("ids") if isinstance(token, dict) else None
        if not isinstance(ids, list) or len(ids) > MAX_PIECE_IDS or not all(map(_is_id, ids)):
            raise step.fail("special_tokens", shown(ids), f"at most {MAX_PIECE_IDS} ids each")
    return 1.0


def _harmless(step: Fields) -> float:
    return 1.0


def _short_content(step: Fields) -> float:
    _literal(step, "content", step.get("content"))
    return 1.0


def _unused_replace(step: Fields) -> float:
    """Of a decoder: our own decoding never runs it, but the library reads its pattern."""
    _replace(step)
    return 1.0


# Of each part, the steps we know and how many times longer each can make a text.
KNOWN: dict[str, dict[str, Step]] = {
    "normalizer": {
        "NFC": lambda step: 3.0,
        "NFD": lambda step: 3.0,
        "NFKC": lambda step: 11.0,
        "NFKD": lambda step: 11.0,
        "Lowercase": lambda step: 1.5,
        "Strip": _harmless,
        "StripAccents": _harmless,
        "Replace": _replace,
        "Prepend": lambda step: 1.0 + _literal(step, "prepend", step.get("prepend")),
        "ByteLevel": lambda step: 2.0,
    },
    "pre_tokenizer": {
        "ByteLevel": _byte_level,
        "Metaspace": _metaspace,
        "Split": _split,
        "Digits": _harmless,
        "Punctuation": _harmless,
        "Whitespace": _harmless,
        "WhitespaceSplit": _harmless,
    },
    "post_processor": {"ByteLevel": _harmless, "TemplateProcessing": _template},
    "decoder": {
        "ByteLevel": _harmless,
        "ByteFallback": _harmless,
        "Fuse": _harmless,
        "Strip": _short_content,
        "Metaspace": _harmless,
        "Replace": _unused_replace,
    },
}
