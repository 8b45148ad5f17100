"""Arrays of strings that are kept as one run of bytes."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.loaders.texts import Texts


def _texts(parts: list[bytes]) -> Texts:
    return Texts(b"".join(parts), np.array([len(part) for part in parts], np.int64))


@pytest.mark.parametrize("strings", [[], [""], ["a", "", "h\u00e9", "\U0001f642", ""], ["x"] * 3])
def test_reads_like_a_list(strings: list[str]) -> None:
    texts = _texts([text.encode() for text in strings])
    assert texts.first_wrong() is None
    assert list(texts) == [texts[i] for i in range(len(texts))] == texts[:] == strings
    assert texts[1:3] == strings[1:3]
    with pytest.raises(IndexError):
        texts[len(strings)]


def test_names_the_first_that_is_not_utf8() -> None:
    assert _texts([b"a", b"\xff", b"\xfe"]).first_wrong() == 1
    assert _texts([b"a", b"\xc3", b"\xa9"]).first_wrong() == 1  # a character only when joined
