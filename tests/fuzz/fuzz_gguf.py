"""GGUF files: damaged byte by byte, and whole ones with values that nobody expects."""

from __future__ import annotations

import struct
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from fuzz_driver import Target, main, only_own_errors
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))

from gguf_writer import ARRAY, BOOL, CODES, F32, F64, STRING, File, byte_level_vocab, scored_vocab, tiny_model
from test_loader_fuzz import EDITS, edited

from samebits.loaders.gguf import parse_gguf
from samebits.models.checkpoint import describe

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma2")
VOCABS = (byte_level_vocab, scored_vocab)
TEXTS = ("hi <|im_start|> h\u00e9llo aaaa\n", "<s>\u2581 hi</s>\U0001f642" * 20, " " * 3000 + "a" * 5000)
PATH = Path("fuzz.gguf")


def run(data: bytes) -> None:
    """Opens, checks, reads and tokenizes as a user would."""
    with only_own_errors():
        checkpoint = describe(parse_gguf(data, PATH))
        checkpoint.check()
        for name in checkpoint.tensors:
            checkpoint.tensor(name)
    with only_own_errors():
        tokenizer = describe(parse_gguf(data, PATH)).tokenizer()
        for text in TEXTS:
            tokenizer.decode(tokenizer.encode(text)[:200])


@cache
def model(architecture: str, vocab: Any) -> File:
    return tiny_model(architecture, vocab())


@cache
def seeds() -> list[bytes]:
    return [model(architecture, vocab).build() for architecture in ARCHITECTURES for vocab in VOCABS]


@cache
def header_bytes(number: int) -> int:
    return min(p.offset for p in parse_gguf(seeds()[number], PATH).places.values())


def number_of(kind: int) -> st.SearchStrategy[Any]:
    if kind in (F32, F64):
        return st.floats(width=32 if kind == F32 else 64)
    num_bits = 8 * struct.calcsize("<" + CODES[kind])
    lowest = -(1 << num_bits - 1) if CODES[kind].islower() else 0
    return st.integers(0, 2) if kind == BOOL else st.integers(lowest, lowest + (1 << num_bits) - 1)


STRINGS = st.one_of(st.text(max_size=6), st.sampled_from(["a", "h i", "\u0120", "<s>", "\u2581", "gpt2", "llama", ""]))
SCALARS = st.sampled_from(sorted(CODES)).flatmap(lambda kind: st.tuples(st.just(kind), number_of(kind)))
ARRAYS = st.one_of(
    st.tuples(st.just((ARRAY, STRING)), st.lists(STRINGS, max_size=40)),
    st.sampled_from(sorted(CODES)).flatmap(
        lambda kind: st.tuples(st.just((ARRAY, kind)), st.lists(number_of(kind), max_size=40))
    ),
)
VALUES = st.one_of(SCALARS, ARRAYS, st.tuples(st.just(STRING), STRINGS))
KEYS = sorted({key for a in ARCHITECTURES for vocab in VOCABS for key in model(a, vocab).metadata})


def changed(architecture: str, vocab: Any, changes: dict[str, Any], drops: list[str]) -> bytes:
    file = model(architecture, vocab)
    metadata = {key: value for key, value in (file.metadata | changes).items() if key not in drops}
    return replace(file, metadata=metadata).build()


DAMAGED = st.tuples(st.integers(0, len(ARCHITECTURES) * len(VOCABS) - 1), st.lists(EDITS, min_size=1, max_size=6))
STRUCTURED = st.builds(
    changed,
    st.sampled_from(ARCHITECTURES),
    st.sampled_from(VOCABS),
    st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=3),
    st.lists(st.sampled_from(KEYS), max_size=1),
)
INPUTS = st.one_of(DAMAGED.map(lambda pair: edited(seeds()[pair[0]], header_bytes(pair[0]), pair[1])), STRUCTURED)

if __name__ == "__main__":
    main(Target("fuzz_gguf", run, INPUTS, seeds))
