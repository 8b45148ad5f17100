"""Special tokens are cut out of a text before anything else, the longest first, as llama.cpp does it."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from samebits.loaders.native import native

Part = bytes | int
Cutter = Callable[[bytes], Iterator[Part]]  # stretches of the text, none of them empty, and tokens between them
HIGH, LOW, HALF = 0xD800, 0xDC00, 1 << 10  # surrogates, which no text holds: two of them stand for a special token
MARKS = re.compile("([\ud800-\udbff][\udc00-\udfff])")


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
