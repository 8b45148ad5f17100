"""Tokenizers from a GGUF file's metadata: byte-level BPE ("gpt2") and SentencePiece by score ("llama")."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.loaders import pre_tokenizers
from samebits.loaders.byte_level import SPACE_MARK, byte_level_piece, byte_token_value, sentence_piece
from samebits.loaders.encoders import Encoder, rank_encoder, score_encoder
from samebits.loaders.fields import shown
from samebits.loaders.gguf_vocab import BYTE, Pieces, Vocab, numbers, read_vocab, strings
from samebits.loaders.limits import MAX_MERGES
from samebits.loaders.merge_by_rank import UNKNOWN
from samebits.loaders.special_parts import METASPACE_KEY, METASPACE_SCHEMES, special_cutter, strips_of
from samebits.loaders.token_ids import TokenIds, token_ids
from samebits.loaders.tokenizer import Tokenizer, find_special

# Gemma's vocabulary has them for HTML, with <eos> for ends: they end answers as control tokens or by their ids alone.
HTML_TAGS = ("</s>",)
SPACES = (b" ", SPACE_MARK.encode("utf-8"))


class GgufTokenizer(Tokenizer):
    """Special tokens are cut out of the text first; the rest goes to `_encode_text`."""

    def __init__(self, vocab: Vocab, of_text: Callable[[str], bytes], adds_bos: bool) -> None:
        controls = vocab.controls
        candidates = controls | frozenset(i for i in vocab.user_defined if vocab.text(i) not in HTML_TAGS)
        special = find_special({vocab.text(i): i for i in candidates}, candidates, vocab.named, vocab.listed_ends())
        super().__init__(vocab.fields.where, Pieces(vocab, of_text), controls, special, vocab.max_token_bytes(of_text))
        parsed = vocab.parsed()
        always = [(text, token) for text, token, only_when_asked in parsed if not only_when_asked]
        self._cut_special = special_cutter([(text, token) for text, token, _ in parsed])
        self._cut_always = special_cutter(always)
        self._strips = strips_of(vocab)
        self._prefix = _fence(vocab, "add_bos_token", adds_bos, special.bos, "bos_token_id")
        self._suffix = _fence(vocab, "add_eos_token", False, special.eos, "eos_token_id")

    def _encode_text(self, data: bytes, follows_special: bool, is_first: bool) -> bytes:
        """Return the ids of some UTF-8 without special tokens, as int32.

        follows_special  the start of the text counts as a special token
        is_first         the data starts the text
        """
        raise NotImplementedError

    def _encode(self, text: str, add_special: bool, parse_special: bool) -> array[int]:
        ids = array("i", self._prefix if add_special else ())
        follows_special, cut = True, self._cut_special if parse_special else self._cut_always
        parts = cut(text.encode("utf-8"))
        is_first = True
        for part in self._strips.applied(parts) if self._strips else parts:
            if isinstance(part, int):
                ids.append(part)
            else:
                ids.frombytes(self._encode_text(part, follows_special, is_first))
            follows_special, is_first = isinstance(part, int), False
        ids.extend(self._suffix if add_special else ())
        return ids


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
        super().__init__(vocab, byte_level_piece, pre in pre_tokenizers.BEGINS_WITH_BOS)
        self.pre_tokenizer = pre
        self._encode_words = _rank_encoder(vocab, pre)

    def _encode_text(self, data: bytes, follows_special: bool, is_first: bool) -> bytes:
        return self._encode_words(data)


class ScoredTokenizer(GgufTokenizer):
    """SentencePiece BPE by score, with bytes for characters that the vocabulary lacks."""

    kind = "SentencePiece by score"

    def __init__(self, vocab: Vocab) -> None:
        for name, default in (("bos", 1), ("eos", 2), ("unk", 0)):  # what "llama" vocabularies mean when silent
            if vocab.named[name] is None and default < len(vocab.texts):
                vocab.named[name] = default
        super().__init__(vocab, sentence_piece, adds_bos=True)
        scores = numbers(vocab.fields, "scores", len(vocab.texts))
        if scores is None:
            raise vocab.fields.fail("scores", "nothing", "a score for each token")
        self.adds_space_prefix = vocab.fields.flag("add_space_prefix", True)
        self._metaspace = vocab.fields.values.get(METASPACE_KEY)
        if self._metaspace is not None and str(self._metaspace) not in METASPACE_SCHEMES:
            needed = " or ".join(METASPACE_SCHEMES)
            raise BadInput(vocab.fields.where, METASPACE_KEY, shown(self._metaspace), needed)
        values = {byte_token_value(vocab.text(i)): i for i in vocab.of_types(BYTE)}
        unknown = UNKNOWN if self.special.unk is None else self.special.unk
        byte_ids = np.array([values.get(b, unknown) for b in range(256)], np.int32)
        self._encode_scored = score_encoder(vocab, scores, byte_ids)

    def _encode_text(self, data: bytes, follows_special: bool, is_first: bool) -> bytes:
        ids = self._encode_scored((b" " if self._has_space_prefix(data, follows_special, is_first) else b"") + data)
        if (np.frombuffer(ids, np.int32) == UNKNOWN).any():
            needed = "characters or bytes that the vocabulary holds"
            raise BadInput("encode", "text", "a character that has no token", needed)
        return ids

    def _has_space_prefix(self, data: bytes, follows_special: bool, is_first: bool) -> bool:
        """Return whether a space goes in front of the data: by GGUF's rule, or by Metaspace's if the file names one."""
        if self._metaspace is None:
            return self.adds_space_prefix and follows_special
        return (is_first or self._metaspace == "always") and not data.startswith(SPACES)


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


def _rank_encoder(vocab: Vocab, pre: str) -> Encoder:
    ids = token_ids(vocab)
    return rank_encoder(vocab, ids, _read_merges(vocab, ids), pre)


def _read_merges(vocab: Vocab, ids: TokenIds) -> np.ndarray:
    """int32 [merges, 3]: left, right and join, by rank; BadInput for one whose parts or join are no tokens."""
    texts = strings(vocab.fields, "merges")
    if len(texts) > MAX_MERGES:
        raise vocab.fields.fail("merges", len(texts), f"at most {MAX_MERGES}")
    merges = ids.find_merges(texts)
    if (is_wrong := (merges < 0).any(axis=1)).any():
        first = int(is_wrong.argmax())
        given = f"{shown(texts[first])} as number {first}"
        raise vocab.fields.fail("merges", given, "two tokens whose join is a token")
    return merges
