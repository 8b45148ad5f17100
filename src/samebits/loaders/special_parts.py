"""Special tokens are cut out of a text before anything else, the longest first, as llama.cpp does it.

Some take white space off the text beside them. GGUF has no key for it: llama.cpp knows Phi-3's by the model's name, and
`convert` writes keys of our own for any others.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from samebits.core.errors import BadInput
from samebits.loaders.gguf_vocab import PARSED_TYPES, Vocab
from samebits.loaders.native import native

Part = bytes | int
Cutter = Callable[[bytes], Iterator[Part]]  # stretches of the text, none of them empty, and tokens between them
HIGH, LOW, HALF = 0xD800, 0xDC00, 1 << 10  # surrogates, which no text holds: two of them stand for a special token
MARKS = re.compile("([\ud800-\udbff][\udc00-\udfff])")
METASPACE_KEY, METASPACE_SCHEMES = "tokenizer.samebits.metaspace_prepend", ("first", "always")
LEFT_KEY, RIGHT_KEY = "tokenizer.samebits.lstrip_token_ids", "tokenizer.samebits.rstrip_token_ids"
ASCII_SPACES = " \t\n\v\f\r"
SPACES = ASCII_SPACES + "\x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
PHI3_NAMES = ("phi-3", "phi3")  # in a model's name, in small letters
PHI3_KEEPS = ("<unk>", "<s>", "<|endoftext|>")  # of Phi-3's special tokens, those that take nothing off
PHI3_NEEDS = ("</s>", *PHI3_KEEPS)  # llama.cpp does not open a file of such a name without them


def special_cutter(tokens: Sequence[tuple[str, int]]) -> Cutter:
    """Cuts UTF-8 at these tokens, a text and an id each, in the order of the list."""
    module = native()
    if module is None or not tokens:
        return python_special_cutter(tokens)
    texts = [text.encode("utf-8") for text, _ in tokens]
    ends = np.cumsum(list(map(len, texts)), dtype=np.uint32)
    ids = np.array([token_id for _, token_id in tokens], np.int32)
    return partial(_native_parts, module.Specials(b"".join(texts), ends, ids).cut)


def python_special_cutter(tokens: Sequence[tuple[str, int]]) -> Cutter:
    """`special_cutter` without native code."""
    return partial(_python_parts, tokens)


def _native_parts(cut: Callable[[bytes], bytes], data: bytes) -> Iterator[Part]:
    """`cut` gives begin, end and token of every part, int32 each; a token below 0 is none."""
    numbers = array("i", cut(data))
    for i in range(0, len(numbers), 3):
        begin, end, token_id = numbers[i : i + 3]
        yield data[begin:end] if token_id < 0 else token_id


def _python_parts(tokens: Sequence[tuple[str, int]], data: bytes) -> Iterator[Part]:
    text = data.decode("utf-8")
    found: list[int] = []
    for token, token_id in tokens:
        if token in text:
            text = text.replace(token, chr(HIGH + len(found) // HALF) + chr(LOW + len(found) % HALF))
            found.append(token_id)
    for i, part in enumerate(MARKS.split(text)):
        if i % 2:
            yield found[(ord(part[0]) - HIGH) * HALF + ord(part[1]) - LOW]
        elif part:
            yield part.encode("utf-8")


@dataclass(frozen=True)
class Strips:
    """Tokens that take the white space in front of them, or behind them, off a text; `spaces`: what counts as such."""

    left: frozenset[int] = frozenset()
    right: frozenset[int] = frozenset()
    spaces: str = SPACES

    def __bool__(self) -> bool:
        return bool(self.left or self.right)

    def applied(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Return the parts without that white space. No two texts stand side by side among them."""
        held = b""  # a text, until the token behind it is known
        previous = -1
        for part in parts:
            if isinstance(part, bytes):
                held = self._stripped(part, previous in self.right, False)
                continue
            if held := self._stripped(held, False, part in self.left):
                yield held
            held, previous = b"", part
            yield part
        if held:
            yield held

    def _stripped(self, text: bytes, at_start: bool, at_end: bool) -> bytes:
        if not at_start and not at_end:
            return text
        shown = text.decode("utf-8")
        shown = shown.lstrip(self.spaces) if at_start else shown
        return (shown.rstrip(self.spaces) if at_end else shown).encode("utf-8")


def strips_of(vocab: Vocab) -> Strips:
    """Return what a GGUF file says, by our keys or by the name of a Phi-3. Raise BadInput for keys that hold no ids."""
    values = vocab.fields.values
    if LEFT_KEY in values or RIGHT_KEY in values:
        return Strips(_ids(vocab, LEFT_KEY), _ids(vocab, RIGHT_KEY))
    if is_phi3(values.get("general.name")):
        texts = {vocab.text(i): i for i in vocab.of_types(*PARSED_TYPES)}
        return Strips(right=phi3_right(texts), spaces=ASCII_SPACES)
    return Strips()


def is_phi3(name: object) -> bool:
    """Return whether llama.cpp takes a model of this name for a Phi-3."""
    return isinstance(name, str) and any(part in name.lower() for part in PHI3_NAMES)


def phi3_right(special: Mapping[str, int]) -> frozenset[int]:
    """Return Phi-3's tokens that take off white space behind them, of its special tokens by their texts."""
    return frozenset(i for text, i in special.items() if text not in PHI3_KEEPS)


def _ids(vocab: Vocab, key: str) -> frozenset[int]:
    value = vocab.fields.values.get(key, np.zeros(0, np.int32))
    is_ids = isinstance(value, np.ndarray) and value.dtype.kind in "iu"
    if not is_ids or ((value < 0) | (value >= len(vocab.texts))).any():
        given = f"{len(value)} values" if is_ids else type(value).__name__
        raise BadInput(vocab.fields.where, key, given, f"ids below {len(vocab.texts)}")
    return frozenset(value.tolist())
