"""The compiled encoders against the Python ones, which define them, on vocabularies and texts drawn at random."""

from __future__ import annotations

import random
import struct
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from gguf_writer import byte_level_vocab, scored_vocab, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.core.errors import BadInput
from samebits.loaders import encoders, gguf_values, pre_tokenizers
from samebits.loaders.byte_level import BYTE_OF_CHAR, SPACE_MARK
from samebits.loaders.fields import Fields
from samebits.loaders.gguf import parse_gguf
from samebits.loaders.gguf_tokenizer import tokenizer_from_gguf
from samebits.loaders.gguf_vocab import Vocab
from samebits.loaders.native import native
from samebits.loaders.special_parts import python_special_cutter, special_cutter
from samebits.loaders.texts import texts_of
from samebits.loaders.token_ids import NativeTokenIds, PythonTokenIds, token_ids

IS_BUILT = find_spec("samebits.kernels.cpp._native") is not None
pytestmark = pytest.mark.skipif(not IS_BUILT, reason="needs the native part: pip install .")
# Everything that a pattern treats in a way of its own, and a few of each class beyond ASCII.
TRICKY = " \n\r\t\v\x85\xa0\u2028\u3000abzsStTmMdDrReEvVlL''019\xbd\u0663,.!-\xe9\u4e2d\U0001f642\u0301\u2581"
TEXTS = st.one_of(st.text(st.sampled_from(TRICKY), max_size=60), st.text(max_size=40))
LONG = 5000  # beyond the length from which merges wait in lists


def test_the_native_part_is_there() -> None:
    """Without it the others would compare Python with itself."""
    assert native() is not None


def vocab_of(texts: list[str]) -> Vocab:
    return Vocab(Fields({}, "x.gguf"), texts_of(texts), np.ones(len(texts), np.uint8), {})


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.text("ab \xe9", max_size=5), min_size=1, max_size=12, unique=True),
    st.lists(st.text("ab \xe9", max_size=7), max_size=12),
)
def test_token_ids(tokens: list[str], merges: list[str]) -> None:
    """Texts without a cut, with several, that begin or end with one, and parts that are no tokens."""
    vocab, asked = vocab_of(tokens), texts_of([*tokens, *merges, "[EMPTY_0]"])
    found, wanted = token_ids(vocab), PythonTokenIds(vocab.ids())
    assert isinstance(found, NativeTokenIds)
    assert found.find(asked).tolist() == wanted.find(asked).tolist()
    assert found.find_merges(asked).tolist() == wanted.find_merges(asked).tolist()


def test_a_text_of_two_tokens_is_named() -> None:
    for tokens in (["a", "b", "a"], ["", "[EMPTY_0]"]):
        with pytest.raises(BadInput, match="as 0 and"):
            token_ids(vocab_of(tokens))


@given(st.lists(st.binary(max_size=9), max_size=6), st.integers(-12, 12), st.integers(0, 9))
def test_strings_of_a_file(strings: list[bytes], num_more_bytes: int, max_bytes: int) -> None:
    """Whole, cut short and too long; where all is well both read the same."""
    whole = b"??" + b"".join(struct.pack("<Q", len(text)) + text for text in strings)
    data = whole[: len(whole) + num_more_bytes] if num_more_bytes < 0 else whole + bytes(num_more_bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf_values, "MAX_STRING_BYTES", max_bytes)
        cursor = gguf_values.Cursor(data, "x.gguf")
        cursor.take(2 if len(data) >= 2 else 0, "x")
        found = native().strings(np.frombuffer(data, np.uint8), cursor.position, len(data), len(strings), max_bytes)
        try:
            wanted = cursor._python_strings("x", len(strings))
        except BadInput:
            wanted = None
    assert found == wanted


def both_by_rank(draw: random.Random, pre: str, letters: list[str], often: str) -> tuple[Any, Any]:
    """Encoders of a vocabulary of joins of joins of some letters; ranks may cross, pairs repeat and bytes miss."""
    joined, pairs = [char for char in often if char in letters], []
    for _ in range(60):
        left, right = draw.choice(joined), draw.choice(joined)
        if len(left + right) <= 12:
            pairs.append((left, right))
            if left + right not in joined:
                joined.append(left + right)
    texts = [*letters, *(text for text in joined if text not in letters)]
    if draw.random() < 0.5:
        draw.shuffle(pairs)
    texts += ["", "a b", "\u4e2d"]  # no bytes, and characters that stand for none
    vocab = vocab_of(texts)
    ids = vocab.ids()
    merges = np.array([(ids[a], ids[b], ids[a + b]) for a, b in pairs], np.int32).reshape(-1, 3)
    return (
        encoders.rank_encoder(vocab, token_ids(vocab), merges, pre),
        encoders.python_rank_encoder(ids, merges, pre),
    )


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 30), st.sampled_from(sorted(pre_tokenizers.PATTERNS)), TEXTS)
def test_by_rank(seed: int, pre: str, text: str) -> None:
    draw = random.Random(seed)
    letters = [char for char in BYTE_OF_CHAR if draw.random() < 0.95]
    native, python = both_by_rank(draw, pre, letters, "abzst\u0120\u010a'0")
    assert native(text.encode()) == python(text.encode())


@pytest.mark.parametrize("seed", range(6))
def test_by_rank_on_long_words(seed: int) -> None:
    draw = random.Random(seed)
    native, python = both_by_rank(draw, "gpt-2", ["a", "b", "c"], "abc")
    for text in ("a" * LONG, "".join(draw.choices("abcx", [9, 9, 9, 1], k=LONG)), "ab" * (LONG // 2) + "c" * LONG):
        assert native(text.encode()) == python(text.encode())


def both_by_score(draw: random.Random) -> tuple[Any, Any]:
    """Encoders of joins whose scores often tie; some letters are no tokens though joins of them are."""
    texts = {draw.choice(("a", "b", SPACE_MARK, "\xe9", "\u4e2d")) for _ in range(4)}
    for _ in range(25):
        join = draw.choice(sorted(texts)) + draw.choice(sorted(texts))
        texts |= {join} if len(join) <= 8 else set()
    found = [*sorted(texts), "", "a b", " "]  # with spaces of their own: never met
    draw.shuffle(found)
    scores = np.array([draw.choice((0.0, -0.0, -1.0, -2.5, draw.uniform(-9, 0))) for _ in found], np.float32)
    byte_ids = np.array([draw.choice((-1, 0, b % len(found))) for b in range(256)], np.int32)
    vocab = vocab_of(found)
    return encoders.score_encoder(vocab, scores, byte_ids), encoders.python_score_encoder(vocab.ids(), scores, byte_ids)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 60), st.text(st.sampled_from("ab \u2581\xe9\u4e2d\U0001f642"), max_size=50))
def test_by_score(seed: int, text: str) -> None:
    native, python = both_by_score(random.Random(seed))
    assert native(text.encode()) == python(text.encode())


@pytest.mark.parametrize("seed", range(6))
def test_by_score_on_long_texts(seed: int) -> None:
    draw = random.Random(seed)
    native, python = both_by_score(draw)
    for text in (" " * LONG, "a" * LONG, "".join(draw.choices("ab \xe9", k=LONG))):
        assert native(text.encode()) == python(text.encode())


SPECIALS = st.lists(st.text(st.sampled_from("<|a>\n\xe9"), min_size=1, max_size=5), max_size=8, unique=True)


@settings(max_examples=300, deadline=None)
@given(SPECIALS, st.text(st.sampled_from("<|a>\n\xe9b"), max_size=40))
def test_special_tokens(texts: list[str], text: str) -> None:
    """Tokens that hold, begin and overlap one another, in any order."""
    tokens = [(token, i) for i, token in enumerate(texts)]
    native, python = special_cutter(tokens), python_special_cutter(tokens)
    assert list(native(text.encode())) == list(python(text.encode()))


def test_by_rank_as_the_library() -> None:
    """An oracle of another make: the `tokenizers` library, with a token for what it does not know."""
    draw = random.Random(7)
    file = parse_gguf(tiny_model("llama", byte_level_vocab()).build(), Path("x.gguf"))
    texts = list(file.metadata["tokenizer.ggml.tokens"])
    pairs = [tuple(merge.split(" ")) for merge in file.metadata["tokenizer.ggml.merges"]]
    ids = {text: i for i, text in enumerate(texts)}
    library = tokenizers.Tokenizer(tokenizers.models.BPE(ids, pairs))
    library.pre_tokenizer = pre_tokenizers.build("smollm")
    tokenizer = tokenizer_from_gguf(file.metadata, "x.gguf")
    for size in (10, 100, LONG):
        text = "".join(draw.choices("hiaelo \n12", k=size))
        assert tokenizer.encode(text, parse_special=False) == library.encode(text).ids


def test_every_character_has_the_librarys_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "tools"))
    import make_char_classes

    assert make_char_classes.header() == make_char_classes.TARGET.read_text()


def hostile_texts(num_bytes: int) -> dict[str, str]:
    draw = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return {
        "spaces": " " * num_bytes,
        "one letter": "a" * num_bytes,
        "newlines": "\n" * num_bytes,
        "one word": "".join(draw.choices(letters, k=num_bytes)),
        "mixed": "Hello, world: 12 things aren't what they seem.\n" * (num_bytes // 47),
        "emoji": "\U0001f642" * (num_bytes // 4),
        "special tokens": "<|im_end|>a" * (num_bytes // 11),
        "almost special": "<|im_en" * (num_bytes // 7),
        "surrogate look-alikes": "\ud7ff\ue000" * (num_bytes // 6),
    }


@pytest.mark.parametrize("vocab", [byte_level_vocab, scored_vocab])
@pytest.mark.parametrize("name", hostile_texts(0))
def test_no_text_takes_long(vocab: Any, name: str) -> None:
    """A quadratic step anywhere would take minutes for a megabyte."""
    tokenizer = tokenizer_from_gguf(parse_gguf(tiny_model("llama", vocab()).build(), Path("x.gguf")).metadata, "x")
    text = hostile_texts(1 << 20)[name]
    start = time.thread_time()
    tokenizer.encode(text)
    assert time.thread_time() - start < 10


def test_the_interpreter_goes_on_meanwhile() -> None:
    """Encoding four megabytes leaves other threads their turns."""
    metadata = parse_gguf(tiny_model().build(), Path("x.gguf")).metadata
    tokenizer, text, is_over = tokenizer_from_gguf(metadata, "x"), "ahi elo" * 600_000, threading.Event()
    encoding = threading.Thread(target=lambda: (tokenizer.encode(text), is_over.set()))
    encoding.start()
    longest, start = 0.0, time.perf_counter()
    last = start
    while not is_over.is_set():
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    encoding.join()
    assert longest < max(0.25, (last - start) / 2)  # a busy machine stretches both


def test_a_text_that_cannot_fit_is_not_looked_at() -> None:
    tokenizer = tokenizer_from_gguf(parse_gguf(tiny_model().build(), Path("x.gguf")).metadata, "x.gguf")
    assert tokenizer.max_token_bytes == len("<|endoftext|>")
    assert len(tokenizer.encode("<|endoftext|>" * 9, max_tokens=9)) == 9
    with pytest.raises(BadInput, match=r"text has 10 tokens, but must have at most 9$"):
        tokenizer.encode("<|endoftext|>" * 8 + "bc", max_tokens=9)
    expected = r"text has 118 bytes, but must have at most 117, what 9 tokens of 13 bytes can hold$"
    with pytest.raises(BadInput, match=expected):
        tokenizer.encode("<|endoftext|>" * 9 + "b", max_tokens=9)
    with pytest.raises(BadInput, match="has 120 bytes"):
        tokenizer.encode("\xe9" * 60, max_tokens=9)
