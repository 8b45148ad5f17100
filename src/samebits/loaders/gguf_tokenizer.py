"""Tokenizers from a GGUF file's metadata: byte-level BPE ("gpt2") and SentencePiece by score ("llama")."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.loaders import pre_tokenizers
from samebits.loaders.byte_level import BYTE_OF_CHAR, SPACE_MARK, byte_level_piece, byte_token_value, sentence_piece
from samebits.loaders.fields import shown
from samebits.loaders.gguf_vocab import BYTE, Pieces, Vocab, numbers, read_vocab, strings
from samebits.loaders.merge_by_rank import UNKNOWN, Merges
from samebits.loaders.merge_by_score import merge_by_score
from samebits.loaders.tokenizer import Tokenizer, find_special, library_guard

BYTE_PLACE = {char: place for place, char in enumerate(BYTE_OF_CHAR)}
MAX_MERGES = 1 << 22
MAX_CACHED_WORDS, MAX_CACHED_CHARS = 1 << 13, 64


class GgufTokenizer(Tokenizer):
    """Special tokens are cut out of the text first, as llama.cpp does it; the rest goes to `_encode_text`."""

    def __init__(self, vocab: Vocab, pieces: Pieces, adds_bos: bool) -> None:
        controls = vocab.controls
        candidates = controls | vocab.user_defined
        special = find_special({vocab.text(i): i for i in candidates}, candidates, vocab.named)
        super().__init__(vocab.fields.where, pieces, controls, special)
        self._parsed = vocab.parsed()
        self._prefix = _fence(vocab, "add_bos_token", adds_bos, special.bos, "bos_token_id")
        self._suffix = _fence(vocab, "add_eos_token", False, special.eos, "eos_token_id")

    def _encode_text(self, text: str, follows_special: bool) -> list[int]:
        raise NotImplementedError

    def _encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        ids = list(self._prefix) if add_special else []
        follows_special = True
        for part in self._parts(text, parse_special):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids.extend(self._encode_text(part, follows_special))
            follows_special = isinstance(part, int)
        return [*ids, *self._suffix] if add_special else ids

    def _parts(self, text: str, parse_special: bool) -> list[str | int]:
        """The text cut at special tokens, the longest ones looked for first."""
        parts: list[str | int] = [text] if text else []
        for token, token_id, only_when_asked in self._parsed:
            if (only_when_asked and not parse_special) or token not in text:
                continue
            cut: list[str | int] = []
            for part in parts:
                if isinstance(part, int):
                    cut.append(part)
                    continue
                for i, piece in enumerate(part.split(token)):
                    if i:
                        cut.append(token_id)
                    if piece:
                        cut.append(piece)
            parts = cut
        return parts


class ByteLevelTokenizer(GgufTokenizer):
    """Byte-level BPE on the words of a pre-tokenizer. Bytes the vocabulary lacks are left out, as in llama.cpp."""

    kind = "byte-level BPE"

    def __init__(self, vocab: Vocab) -> None:
        fields = vocab.fields
        name = fields.text("pre")
        pre = pre_tokenizers.canonical(name)
        if pre is None:
            known = ", ".join(sorted([*pre_tokenizers.PATTERNS, *pre_tokenizers.ALIASES]))
            raise fields.fail("pre", repr(name), f"one of {known}")
        super().__init__(vocab, Pieces(vocab, byte_level_piece), pre in pre_tokenizers.BEGINS_WITH_BOS)
        self.pre_tokenizer = pre
        self._words = pre_tokenizers.build(pre)
        ids = vocab.ids()
        byte_ids, merges = [ids.get(char, UNKNOWN) for char in BYTE_OF_CHAR], _read_merges(vocab, ids)
        whole_words = ids if pre in pre_tokenizers.WHOLE_WORDS_FIRST else {}
        del ids  # before what stays is made: lying in between, it would keep this memory from going back
        self._encode_word = partial(_encode_word, whole_words, array("i", byte_ids), Merges(merges, self.vocab_size))
        self._encode_short_word = lru_cache(MAX_CACHED_WORDS)(self._encode_word)

    def _encode_text(self, text: str, follows_special: bool) -> list[int]:
        with library_guard(self.where, "text", "text that the tokenizer can take"):
            words = self._words.pre_tokenize_str(text)
        ids: list[int] = []
        for word, _ in words:
            ids += self._encode_short_word(word) if len(word) <= MAX_CACHED_CHARS else self._encode_word(word)
        return ids


class ScoredTokenizer(GgufTokenizer):
    """SentencePiece BPE by score, with bytes for characters that the vocabulary lacks."""

    kind = "SentencePiece by score"

    def __init__(self, vocab: Vocab) -> None:
        for name, default in (("bos", 1), ("eos", 2), ("unk", 0)):  # what "llama" vocabularies mean when silent
            if vocab.named[name] is None and default < len(vocab.texts):
                vocab.named[name] = default
        super().__init__(vocab, Pieces(vocab, sentence_piece), adds_bos=True)
        scores = numbers(vocab.fields, "scores", len(vocab.texts))
        if scores is None:
            raise vocab.fields.fail("scores", "nothing", "a score for each token")
        self._ids, self._scores = vocab.ids(), scores.astype(float).tolist()
        self.adds_space_prefix = vocab.fields.flag("add_space_prefix", True)
        self._byte_ids = {byte_token_value(vocab.text(i)): i for i in vocab.of_types(BYTE)}

    def _encode_text(self, text: str, follows_special: bool) -> list[int]:
        text = (" " if self.adds_space_prefix and follows_special else "") + text
        ids: list[int] = []
        for symbol in merge_by_score(text.replace(" ", SPACE_MARK), self._ids, self._scores):
            token = self._ids.get(symbol)
            ids.extend([token] if token is not None else self._byte_fallback(symbol))
        return ids

    def _byte_fallback(self, symbol: str) -> list[int]:
        found = [self._byte_ids.get(b, self.special.unk) for b in symbol.encode("utf-8")]
        known = [i for i in found if i is not None]
        if len(known) != len(found):
            raise BadInput(self.where, "text", repr(symbol), "a character or bytes that the vocabulary holds")
        return known


def tokenizer_from_gguf(metadata: Mapping[str, Any], where: str) -> Tokenizer:
    """The tokenizer of a GGUF file; `where` names it in messages."""
    vocab = read_vocab(metadata, where)
    model = vocab.fields.text("model")
    if model == "gpt2":
        return ByteLevelTokenizer(vocab)
    if model == "llama":
        return ScoredTokenizer(vocab)
    raise vocab.fields.fail("model", repr(model), "gpt2 or llama")


def _fence(vocab: Vocab, key: str, default: bool, token: int | None, token_key: str) -> tuple[int, ...]:
    """The token to put at an end of every text, where the file asks for it."""
    if not vocab.fields.flag(key, default):
        return ()
    if token is None:
        raise vocab.fields.fail(token_key, "nothing", f"an id, because {key} is set")
    return (token,)


def _encode_word(whole_words: Mapping[str, int], byte_ids: Sequence[int], merges: Merges, word: str) -> list[int]:
    """The tokens of a word that is written as a byte a character; `byte_ids` in the order of BYTE_OF_CHAR."""
    whole = whole_words.get(word)
    return [whole] if whole is not None else merges.merge([byte_ids[BYTE_PLACE[char]] for char in word])


def _read_merges(vocab: Vocab, ids: Mapping[str, int]) -> np.ndarray:
    """int64 [merges, 3]: left, right and join, by rank; BadInput for one whose parts or join are no tokens."""
    texts = strings(vocab.fields, "merges")
    if len(texts) > MAX_MERGES:
        raise vocab.fields.fail("merges", len(texts), f"at most {MAX_MERGES}")
    lefts, rights = [], []
    for text in texts:
        cut = text.find(" ", 1)  # a token may itself be a space
        lefts.append(text[: max(cut, 0)])  # without a cut nothing, which is no token
        rights.append(text[cut + 1 :])
    parts = (lefts, rights, list(map(str.__add__, lefts, rights)))
    found = [np.fromiter((ids.get(text, -1) for text in part), np.int64, len(texts)) for part in parts]
    merges = np.stack(found, axis=1)
    if (is_wrong := (merges < 0).any(axis=1)).any():
        first = int(is_wrong.argmax())
        given = f"{shown(texts[first])} as number {first}"
        raise vocab.fields.fail("merges", given, "two tokens whose join is a token")
    return merges
