"""From a vocabulary to the function that turns plain text into its tokens.

Compiled where the package was built, and then without the interpreter's lock; else, and for a pre-tokenizer that the
compiled ones lack, the same in Python, which defines what they give. Both take time in proportion to the text, or
nearly so.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from samebits.loaders import pre_tokenizers
from samebits.loaders.byte_level import BYTE_OF_CHAR, SPACE_MARK
from samebits.loaders.gguf_vocab import Vocab
from samebits.loaders.merge_by_rank import UNKNOWN, Merges
from samebits.loaders.merge_by_score import merge_by_score
from samebits.loaders.native import native
from samebits.loaders.texts import texts_of
from samebits.loaders.token_bytes import byte_level_bytes, sentence_piece_bytes
from samebits.loaders.token_ids import TokenIds, token_ids

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

Encoder = Callable[[bytes], bytes]  # UTF-8 to ids as int32
# As in cpp/words.h. The others are cut in Python alone: "gpt-4o", "tekken" and "kimi-k2" cut between small letters and
# capitals, those of DeepSeek cut several times over.
PATTERN_NUMBERS = {"gpt-2": 0, "smollm": 1, "llama-bpe": 2, "qwen2": 3, "qwen35": 4, "glm4": 2}
BYTE_PLACE = {char: place for place, char in enumerate(BYTE_OF_CHAR)}
MAX_CACHED_WORDS, MAX_CACHED_CHARS = 1 << 13, 64


def rank_encoder(vocab: Vocab, ids: TokenIds, merges: np.ndarray, pre: str) -> Encoder:
    """Byte-level BPE on the words of a pre-tokenizer; bytes without a token are left out.

    ids     the vocabulary's
    merges  int32 [merges, 3]: left, right and join, by rank
    """
    module = native()
    if module is None or pre not in PATTERN_NUMBERS:
        return python_rank_encoder(vocab.ids(), merges, pre)
    byte_ids = np.full(256, UNKNOWN, np.int32)
    byte_ids[list(BYTE_OF_CHAR.values())] = ids.find(texts_of(BYTE_OF_CHAR))
    encoder = module.RankEncoder(PATTERN_NUMBERS[pre], byte_ids, merges.reshape(-1), len(vocab.texts))
    if pre in pre_tokenizers.WHOLE_WORDS_FIRST:
        encoder.take_whole_words(*byte_level_bytes(vocab.named_texts()))
    return encoder.encode


def score_encoder(vocab: Vocab, scores: np.ndarray, byte_ids: np.ndarray) -> Encoder:
    """SentencePiece by score, UNKNOWN for what has no token.

    scores    float [tokens]
    byte_ids  int32 [256]: the token of each byte for characters that are none, or UNKNOWN
    """
    module = native()
    if module is None:
        return python_score_encoder(vocab.ids(), scores, byte_ids)
    token_ids(vocab)  # of which there is one for each text
    ranks = np.unique(-scores.astype(np.float64), return_inverse=True)[1].astype(np.uint32)
    encoder = module.ScoreEncoder(*sentence_piece_bytes(vocab.named_texts()), ranks, byte_ids)
    mark = SPACE_MARK.encode("utf-8")
    return lambda data: encoder.encode(data.replace(mark, b" "))


def python_rank_encoder(ids: Mapping[str, int], merges: np.ndarray, pre: str) -> Encoder:
    """`rank_encoder` without native code."""
    whole_words = ids if pre in pre_tokenizers.WHOLE_WORDS_FIRST else {}
    byte_ids = array("i", [ids.get(char, UNKNOWN) for char in BYTE_OF_CHAR])
    encode = partial(_encode_word, whole_words, byte_ids, Merges(merges, len(ids)))
    return partial(_encode_words, pre_tokenizers.build(pre), encode, lru_cache(MAX_CACHED_WORDS)(encode))


def python_score_encoder(ids: Mapping[str, int], scores: np.ndarray, byte_ids: np.ndarray) -> Encoder:
    """`score_encoder` without native code."""
    return partial(_encode_scored, ids, scores.astype(float).tolist(), byte_ids.tolist())


def _encode_words(
    words: PreTokenizer,
    encode: Callable[[str], list[int]],
    encode_short: Callable[[str], list[int]],
    data: bytes,
) -> bytes:
    ids: list[int] = []
    for word, _ in words.pre_tokenize_str(data.decode("utf-8")):
        ids += encode_short(word) if len(word) <= MAX_CACHED_CHARS else encode(word)
    return np.array(ids, np.int32).tobytes()


def _encode_word(whole_words: Mapping[str, int], byte_ids: Sequence[int], merges: Merges, word: str) -> list[int]:
    """The tokens of a word that is written as a byte a character; `byte_ids` in the order of BYTE_OF_CHAR."""
    whole = whole_words.get(word)
    return [whole] if whole is not None else merges.merge([byte_ids[BYTE_PLACE[char]] for char in word])


def _encode_scored(ids: Mapping[str, int], scores: Sequence[float], byte_ids: Sequence[int], data: bytes) -> bytes:
    found: list[int] = []
    for symbol in merge_by_score(data.decode("utf-8").replace(" ", SPACE_MARK), ids, scores):
        token = ids.get(symbol)
        found.extend([token] if token is not None else (byte_ids[b] for b in symbol.encode("utf-8")))
    return np.array(found, np.int32).tobytes()
