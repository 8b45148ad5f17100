"""Files made to cost much: each gets its line, or is read, for little time and memory."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf_writer import ARRAY, I32, STRING, U8, U32, File, byte_level_vocab, text, tiny_model, value_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.core.errors import BadInput
from samebits.loaders import gguf_values
from samebits.loaders.gguf import parse_gguf
from samebits.loaders.gguf_tokenizer import tokenizer_from_gguf

HERE = Path("x.gguf")
MAX_SECONDS, MAX_BYTES = 5.0, 400 << 20  # of CPU and of resident memory; both several times what is measured
EMPTY = struct.pack("<IQ", U8, 0)


def array_of(kind: int, length: int, content: bytes) -> bytes:
    return struct.pack("<IQ", kind, length) + content


def keys(*values: tuple[int, bytes]) -> bytes:
    """A file of nothing but metadata, a type and bytes each."""
    content = b"".join(text(f"k{i}") + struct.pack("<I", kind) + value for i, (kind, value) in enumerate(values))
    return File(num_keys=len(values), extra_keys=content).build()


def arrays(num_keys: int, value: bytes) -> bytes:
    return keys(*[(ARRAY, value)] * num_keys)


def nested(length: int) -> bytes:
    return array_of(ARRAY, length, EMPTY * length)


def with_strings(key: str, length: int) -> bytes:
    """A model with an array of so many empty strings."""
    file = tiny_model("llama", byte_level_vocab())
    del file.metadata[f"tokenizer.ggml.{key}"]
    content = array_of(STRING, length, bytes(8 * length))
    file.extra_keys = text(f"tokenizer.ggml.{key}") + struct.pack("<I", ARRAY) + content
    file.num_keys = len(file.metadata) + 1
    return file.build()


def with_specials(length: int) -> bytes:
    file = tiny_model("llama", byte_level_vocab())
    file.metadata["tokenizer.ggml.tokens"] = ((ARRAY, STRING), [str(i) for i in range(length)])
    file.metadata["tokenizer.ggml.token_type"] = ((ARRAY, I32), [3] * length)
    return file.build()


def reset_peak() -> int:
    """Resident bytes now; from now on `peak` tells the most there were."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty arrays in arrays": (lambda: arrays(1, array_of(ARRAY, 4, nested(1 << 20) * 4)), "is 1048576, .* arrays"),
    "empty arrays in an array": (lambda: arrays(1, nested(1 << 22)), "4194304, but must be at most 4096, what is left"),
    "a few arrays in each of many keys": (
        lambda: arrays(60_000, nested(4)),
        "k1024 is 4, but must be at most 0, what is",
    ),
    "elements in all": (
        lambda: arrays(5, array_of(U8, 1 << 20, bytes(1 << 20))),
        "k4 is 1048576, but must be at most 0",
    ),
    "strings in all": (lambda: arrays(3, array_of(STRING, 1 << 20, bytes(8 << 20))), "k2 is 1048576, .* strings"),
    "strings and numbers": (
        lambda: keys(*[(ARRAY, array_of(U8, 1 << 20, bytes(1 << 20)))] * 4, (ARRAY, array_of(STRING, 1, bytes(8)))),
        "k4 is 1, but must be at most 0",
    ),
    "one long string": (
        lambda: keys((STRING, text(bytes(17 << 20)))),
        "a string of 17825792 bytes, but must be at most",
    ),
    "long strings": (lambda: keys(*[(STRING, text(b"x" * (15 << 20)))] * 5), "left in the header's limit"),
    "long strings in an array": (
        lambda: arrays(1, array_of(STRING, 5, text(b"x" * (15 << 20)) * 5)),
        "a string that runs past the end",
    ),
    "keys": (lambda: keys(*[(U8, b"\0")] * 65_537), "metadata count is 65537"),
    "long keys": (
        lambda: File(num_keys=1100, extra_keys=(text(b"k" * 65_535) + struct.pack("<IB", U8, 0)) * 1100).build(),
        "the same key twice",
    ),
    "tokens": (lambda: with_strings("tokens", (1 << 20) + 1), "tokens is 1048577, but must be from 1 to 1048576"),
    "merges": (lambda: with_strings("merges", (1 << 20) + 1), "merges is 1048577, but must be at most 1048576"),
    "special tokens": (lambda: with_specials(20_000), "20000 special tokens, but must have at most 16384"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_cost_little(name: str) -> None:
    build, expected = HOSTILE[name]
    data = build()
    bytes_before, start = reset_peak(), time.thread_time()
    with pytest.raises(BadInput, match=expected) as caught:
        tokenizer_from_gguf(parse_gguf(data, HERE).metadata, "x.gguf")
    assert time.thread_time() - start < MAX_SECONDS
    assert peak() - bytes_before < MAX_BYTES
    assert str(caught.value).isprintable()


LIMITS = {"MAX_ELEMENTS": 12, "MAX_STRINGS": 6, "MAX_NESTED_ARRAYS": 4}
NUMBERS = st.tuples(st.just(U32), st.lists(st.integers(0, 9), max_size=8))
STRINGS = st.tuples(st.just(STRING), st.lists(st.text(max_size=2), max_size=8))
LEAVES = st.one_of(NUMBERS, STRINGS)
TREES = st.one_of(LEAVES, st.tuples(st.just(ARRAY), st.lists(LEAVES, max_size=4)))


def tree_bytes(tree: Any) -> bytes:
    kind, items = tree
    return array_of(kind, len(items), b"".join(tree_bytes(i) if kind == ARRAY else value_bytes(kind, i) for i in items))


def totals(tree: Any) -> tuple[int, int, int]:
    """Elements, strings and nested arrays of a tree."""
    kind, items = tree
    if kind != ARRAY:
        return len(items), len(items) * (kind == STRING), 0
    parts = [totals(item) for item in items]
    return sum(p[0] for p in parts), sum(p[1] for p in parts), len(items) + sum(p[2] for p in parts)


def plain(value: Any) -> Any:
    return [plain(part) for part in value] if isinstance(value, list) else list(value)


@settings(max_examples=150, deadline=None)
@given(st.lists(TREES, max_size=5))
def test_limits_hold_for_all_arrays_together(trees: list[Any]) -> None:
    """With small limits: a file is read if and only if all its arrays together keep them."""
    sums = [sum(counts[i] for counts in map(totals, trees)) for i in range(len(LIMITS))]
    fits = all(count <= limit for count, limit in zip(sums, LIMITS.values(), strict=True))
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in LIMITS.items():
            patch.setattr(gguf_values, name, limit)
        data = keys(*((ARRAY, tree_bytes(tree)) for tree in trees))
        if not fits:
            with pytest.raises(BadInput, match="must be at most"):
                parse_gguf(data, HERE)
            return
        found = parse_gguf(data, HERE).metadata
    expected = [[items for _, items in part[1]] if part[0] == ARRAY else part[1] for part in trees]
    assert [plain(value) for value in found.values()] == expected
