"""Which tokens many texts are, asked at once: compiled where the package was built, else the same in Python."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from types import ModuleType
from typing import Protocol

import numpy as np

from samebits.loaders.gguf_vocab import Vocab
from samebits.loaders.merge_by_rank import UNKNOWN
from samebits.loaders.native import native
from samebits.loaders.texts import Texts


class TokenIds(Protocol):
    """A vocabulary by its texts, each of which one token has."""

    def find(self, texts: Texts) -> np.ndarray:
        """int32 [texts]: the token of each, or UNKNOWN."""
        ...

    def find_merges(self, texts: Texts) -> np.ndarray:
        """int32 [texts, 3]: the tokens of "left right", left, right and both joined, or UNKNOWN; all three of a text
        that is not two parts. A part may begin with a space, which is then no cut."""
        ...


def token_ids(vocab: Vocab) -> TokenIds:
    """The vocabulary's; BadInput for a text that two tokens have."""
    module = native()
    return PythonTokenIds(vocab.ids()) if module is None else NativeTokenIds(module, vocab)


class NativeTokenIds:
    """`TokenIds` without a Python object for each text."""

    def __init__(self, module: ModuleType, vocab: Vocab) -> None:
        texts = vocab.named_texts()
        self._table = module.TokenTable(texts.data, texts.ends)
        if (self.find(texts) != np.arange(len(texts))).any():
            vocab.ids()  # says which

    def find(self, texts: Texts) -> np.ndarray:
        return np.frombuffer(self._table.find(texts.data, texts.ends), np.int32)

    def find_merges(self, texts: Texts) -> np.ndarray:
        return np.frombuffer(self._table.find_merges(texts.data, texts.ends), np.int32).reshape(-1, 3)


class PythonTokenIds:
    """`TokenIds` without native code."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = ids

    def find(self, texts: Texts) -> np.ndarray:
        return np.fromiter(map(self._ids.get, texts, repeat(UNKNOWN)), np.int32, len(texts))

    def find_merges(self, texts: Texts) -> np.ndarray:
        found = np.full((len(texts), 3), UNKNOWN, np.int32)
        for i, text in enumerate(texts):
            cut = text.find(" ", 1)
            if cut > 0:
                left, right = text[:cut], text[cut + 1 :]
                found[i] = [self._ids.get(part, UNKNOWN) for part in (left, right, left + right)]
        return found
