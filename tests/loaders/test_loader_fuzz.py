"""Damaged files: whatever happens to the bytes, only a SamebitsError may come out of the loaders."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_writer import ARRAY, STRING, byte_level_vocab, scored_vocab, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.core.errors import SamebitsError
from samebits.loaders.gguf import parse_gguf
from samebits.loaders.gguf_tokenizer import tokenizer_from_gguf
from samebits.models.checkpoint import describe

MODELS = {"llama": byte_level_vocab, "qwen2": byte_level_vocab, "gemma2": scored_vocab}
TEXT = "hi <|im_start|> h\u00e9llo aaaa\n"


@cache
def valid(architecture: str) -> bytes:
    return tiny_model(architecture, MODELS[architecture]()).build()


@cache
def header_bytes(architecture: str) -> int:
    return min(p.offset for p in parse_gguf(valid(architecture), Path("x.gguf")).places.values())


def use_everything(data: bytes) -> None:
    """Opens, checks, reads and tokenizes as a user would."""
    file = parse_gguf(data, Path("x.gguf"))
    checkpoint = describe(file)
    checkpoint.check()
    for name in checkpoint.tensors:
        assert checkpoint.tensor(name).shape
    tokenizer = checkpoint.tokenizer()
    ids = tokenizer.encode(TEXT)
    assert all(0 <= i < checkpoint.config.vocab_size for i in ids)
    tokenizer.decode(ids)


@contextmanager
def suppress_own() -> Iterator[None]:
    """Lets a SamebitsError pass if it is one printable line."""
    message = "x"
    try:
        yield
    except SamebitsError as error:
        message = str(error)
    assert message.isprintable()


def survives(data: bytes) -> None:
    with suppress_own():
        use_everything(data)


@pytest.mark.parametrize("architecture", MODELS)
def test_the_undamaged_file_is_good(architecture: str) -> None:
    use_everything(valid(architecture))


NUMBERS = st.sampled_from(
    [0, 1, 2, 7, 8, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
)
EDITS = st.one_of(
    st.tuples(st.just("flip"), st.floats(0, 1, exclude_max=True), st.integers(0, 7)),
    st.tuples(st.just("byte"), st.floats(0, 1, exclude_max=True), st.integers(0, 255)),
    st.tuples(st.just("u32"), st.floats(0, 1, exclude_max=True), NUMBERS),
    st.tuples(st.just("u64"), st.floats(0, 1, exclude_max=True), NUMBERS),
    st.tuples(st.just("cut"), st.floats(0, 1, exclude_max=True), st.integers(1, 64)),
    st.tuples(st.just("insert"), st.floats(0, 1, exclude_max=True), st.integers(1, 64)),
    st.tuples(st.just("end"), st.floats(0, 1, exclude_max=True), st.just(0)),
)


def edited(data: bytes, within: int, edits: list[Any]) -> bytes:
    """The bytes after the edits; places are fractions of the header, where the meaning is."""
    out = bytearray(data)
    for kind, fraction, value in edits:
        at = min(int(fraction * within), max(len(out) - 1, 0))
        if kind == "flip" and out:
            out[at] ^= 1 << value
        elif kind == "byte" and out:
            out[at] = value
        elif kind in ("u32", "u64"):
            packed = struct.pack("<Q", value)[: 4 if kind == "u32" else 8]
            out[at : at + len(packed)] = packed
        elif kind == "cut":
            del out[at : at + value]
        elif kind == "insert":
            out[at:at] = bytes(value)
        elif kind == "end":
            del out[at:]
    return bytes(out)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(MODELS)), st.lists(EDITS, min_size=1, max_size=4))
def test_damaged_bytes(architecture: str, edits: list[Any]) -> None:
    survives(edited(valid(architecture), header_bytes(architecture), edits))


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**64 - 1),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.text(max_size=3), max_size=5),
    st.lists(st.lists(st.integers(), max_size=2), max_size=3),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=300).map(lambda v: np.array(v, np.int32)),
    st.lists(st.floats(width=32), max_size=300).map(lambda v: np.array(v, np.float32)),
)
FLAGS = ("add_bos_token", "add_eos_token", "add_space_prefix", "unknown_token_id", "padding_token_id", "eot_token_id")
KEYS = sorted({*byte_level_vocab(), *scored_vocab(), *(f"tokenizer.ggml.{flag}" for flag in FLAGS)})


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([byte_level_vocab, scored_vocab]), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3))
def test_tokenizers_from_any_metadata(vocab: Any, changes: dict[str, Any]) -> None:
    metadata = parse_gguf(tiny_model("llama", vocab()).build(), Path("x.gguf")).metadata | changes
    with suppress_own():
        tokenizer = tokenizer_from_gguf(metadata, "x.gguf")
        tokenizer.decode(tokenizer.encode(TEXT))


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200), st.booleans(), st.booleans())
def test_any_text_comes_back(text: str, add_special: bool, parse_special: bool) -> None:
    for tokenizer in (_tokenizer(byte_level_vocab), _tokenizer(scored_vocab)):
        ids = tokenizer.encode(text, add_special, parse_special)
        prefix = "" if not add_special or not tokenizer.adds_space_prefix else "<s>"
        if not prefix and not (parse_special and "<" in text) and "\u2581" not in text:
            assert tokenizer.decode(ids) == text


@cache
def _tokenizer(vocab: Any) -> Any:
    return tokenizer_from_gguf(parse_gguf(tiny_model("llama", vocab()).build(), Path("x.gguf")).metadata, "x.gguf")


def test_an_empty_vocabulary() -> None:
    file = tiny_model()
    file.metadata["tokenizer.ggml.tokens"] = ((ARRAY, STRING), [])
    survives(file.build())
