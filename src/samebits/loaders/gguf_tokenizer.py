"""Tokenizers from a GGUF file's metadata: byte-level BPE ("gpt2") and SentencePiece by score ("llama")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import models

from samebits.core.errors import BadInput
from samebits.loaders import pre_tokenizers
from samebits.loaders.byte_level import SPACE_MARK, byte_level_piece, byte_token_value, sentence_piece
from samebits.loaders.fields import shown
from samebits.loaders.gguf_vocab import BYTE, NORMAL, UNUSED, Vocab, numbers, read_vocab, strings
from samebits.loaders.merge_by_score import merge_by_score
from samebits.loaders.tokenizer import Tokenizer, find_special, library_ids

MAX_MERGES = 1 << 22


class GgufTokenizer(Tokenizer):
    """Special tokens are cut out of the text first, as llama.cpp does it; the rest goes to `_encode_text`."""

    def __init__(self, vocab: Vocab, pieces: list[bytes], adds_bos: bool) -> None:
        controls = vocab.controls
        special = find_special(vocab.ids, controls | vocab.user_defined, vocab.named)
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
    """Byte-level BPE through the `tokenizers` library. Bytes the vocabulary lacks are left out, as in llama.cpp."""

    kind = "byte-level BPE"

    def __init__(self, vocab: Vocab) -> None:
        fields = vocab.fields
        name = fields.text("pre")
        pre = pre_tokenizers.canonical(name)
        if pre is None:
            known = ", ".join(sorted([*pre_tokenizers.PATTERNS, *pre_tokenizers.ALIASES]))
            raise fields.fail("pre", repr(name), f"one of {known}")
        pieces = [_piece(text, kind, byte_level_piece) for text, kind in zip(vocab.tokens, vocab.types, strict=True)]
        super().__init__(vocab, pieces, pre in pre_tokenizers.BEGINS_WITH_BOS)
        whole_first = pre in pre_tokenizers.WHOLE_WORDS_FIRST
        self.pre_tokenizer = pre
        missing = _free_text(vocab)
        model = models.BPE(
            vocab.ids | {missing: self.vocab_size}, _merges(vocab), unk_token=missing, ignore_merges=whole_first
        )
        self._bpe = tokenizers.Tokenizer(model)
        self._bpe.pre_tokenizer = pre_tokenizers.build(pre)

    def _encode_text(self, text: str, follows_special: bool) -> list[int]:
        return [i for i in library_ids(self._bpe, text, False, self.where) if i != self.vocab_size]


class ScoredTokenizer(GgufTokenizer):
    """SentencePiece BPE by score, with bytes for characters that the vocabulary lacks."""

    kind = "SentencePiece by score"

    def __init__(self, vocab: Vocab) -> None:
        pieces = [_piece(text, kind, sentence_piece) for text, kind in zip(vocab.tokens, vocab.types, strict=True)]
        for name, default in (("bos", 1), ("eos", 2), ("unk", 0)):  # what "llama" vocabularies mean when silent
            if vocab.named[name] is None and default < len(vocab.tokens):
                vocab.named[name] = default
        super().__init__(vocab, pieces, adds_bos=True)
        scores = numbers(vocab.fields, "scores", len(vocab.tokens))
        if scores is None:
            raise vocab.fields.fail("scores", "nothing", "a score for each token")
        self._ids, self._scores = vocab.ids, scores.astype(float).tolist()
        self.adds_space_prefix = vocab.fields.flag("add_space_prefix", True)
        self._byte_ids = {byte_token_value(t): i for i, t in enumerate(vocab.tokens) if vocab.types[i] == BYTE}

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


def _piece(text: str, kind: int, of_text: Any) -> bytes:
    if kind in (NORMAL, BYTE):
        return bytes(of_text(text))
    return b"" if kind in (0, UNUSED) else text.encode("utf-8")


def _free_text(vocab: Vocab) -> str:
    """A text that is no token. It stands for bytes the vocabulary lacks, lest their neighbours be merged."""
    text = "[missing]"
    while text in vocab.ids:
        text += "]"
    return text


def _merges(vocab: Vocab) -> list[tuple[str, str]]:
    """Pairs by rank; a repeated pair keeps its first rank. BadInput for one whose parts or join are unknown."""
    texts = strings(vocab.fields, "merges")
    if len(texts) > MAX_MERGES:
        raise vocab.fields.fail("merges", len(texts), f"at most {MAX_MERGES}")
    ids, pairs = vocab.ids, dict[tuple[str, str], None]()
    for i, text in enumerate(texts):
        cut = text.find(" ", 1)  # a token may itself be a space
        left, right = text[:cut], text[cut + 1 :]
        if cut < 0 or left not in ids or right not in ids or left + right not in ids:
            raise vocab.fields.fail("merges", f"{shown(text)} as number {i}", "two tokens whose join is a token")
        pairs[left, right] = None
    return list(pairs)
