"""The GGUF reader: what it gives for valid files, and one clear line for every way a file can be wrong."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf_writer import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U32,
    U64,
    File,
    Tensor,
    tensor,
    tiny_model,
)

from samebits.core.errors import BadInput
from samebits.core.format import Packed
from samebits.formats import FORMATS, MXFP4
from samebits.loaders.ggml_types import GGML_TYPES
from samebits.loaders.gguf import open_gguf, parse_gguf

HERE = Path("x.gguf")


def test_values_of_every_type() -> None:
    scalars = {U8: 255, I8: -1, U16: 65535, I16: -2, U32: 2**32 - 1, I32: -3, U64: 2**64 - 1, I64: -4, F64: 0.1}
    file = File({f"k{kind}": (kind, value) for kind, value in scalars.items()})
    file.metadata |= {"f": (F32, 0.5), "b": (BOOL, 1), "s": (STRING, "h\u00e9"), "a": ((ARRAY, I32), [1, -2])}
    file.metadata |= {
        "strings": ((ARRAY, STRING), ["", "x"]),
        "flags": ((ARRAY, BOOL), [1, 0]),
        "none": ((ARRAY, U8), []),
    }
    found = parse_gguf(file.build(), HERE).metadata
    assert {f"k{kind}": value for kind, value in scalars.items()}.items() <= found.items()
    assert (found["f"], found["b"], found["s"], list(found["strings"])) == (0.5, True, "h\u00e9", ["", "x"])
    assert found["a"].tolist() == [1, -2]
    assert found["flags"].tolist() == [True, False]
    assert found["none"].tolist() == []


def test_nested_arrays() -> None:
    inner = struct.pack("<IQII", U32, 2, 7, 8)
    key = struct.pack("<Q", 1) + b"n" + struct.pack("<IIQ", ARRAY, ARRAY, 2) + inner + inner
    found = parse_gguf(File(num_keys=1, extra_keys=key).build(), HERE).metadata["n"]
    assert [part.tolist() for part in found] == [[7, 8], [7, 8]]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [8, 32, 256])
def test_tensors_are_views_with_reversed_dimensions(tmp_path: Path, version: int, alignment: int) -> None:
    tensors = [tensor("a", (3, 5)), tensor("b", (2, 64), 8), tensor("c", (7,), 1)]
    metadata = {"general.alignment": (U32, alignment)}
    file = open_gguf(File(metadata, tensors, version=version, alignment=alignment).write(tmp_path / "x.gguf"))
    a, b, c = (file.read(name) for name in "abc")
    assert isinstance(a, np.ndarray)
    assert isinstance(b, Packed)
    assert (a.shape, b.shape, c.shape) == ((3, 5), (2, 64), (7,))
    assert not a.flags.owndata
    assert not a.flags.writeable
    assert np.array_equal(a, np.arange(15, dtype=np.float32).reshape(3, 5) % 7 - 3)
    assert file.tensors["b"].format == "q8_0"


OURS = {"f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4", "iq4_nl", "iq4_xs"}
OURS |= {f"q{bits}_k" for bits in range(2, 7)}


def test_files_of_an_independent_writer(tmp_path: Path) -> None:
    path = tmp_path / "w.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(3)
    writer.add_array("names", ["a", "b"])
    x = np.linspace(-1, 1, 512, dtype=np.float32).reshape(2, 256)
    rng = np.random.default_rng(0)
    stored = {}
    for kind in (k for k in gguf.GGMLQuantizationType if k.name.lower() in OURS):
        try:
            stored[kind] = gguf.quants.quantize(x, kind)
        except NotImplementedError:  # the package decodes more than it encodes
            num_bytes = 256 // GGML_TYPES[kind.value].block_len * GGML_TYPES[kind.value].block_bytes
            stored[kind] = rng.integers(0, 120, (2, num_bytes), dtype=np.uint8)  # no scale is NaN or Inf
        writer.add_tensor(kind.name, stored[kind], raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = open_gguf(path)
    assert (file.metadata["llama.block_count"], list(file.metadata["names"])) == (3, ["a", "b"])
    assert len(stored) == len(OURS)
    for kind, data in stored.items():
        found = file.read(kind.name)
        assert found.shape == (2, 256)
        values = found.unpack() if isinstance(found, Packed) else found.astype(np.float32)
        assert np.array_equal(values, gguf.quants.dequantize(data, kind)), kind.name


def test_the_type_table_equals_ggml() -> None:
    theirs = {k.value: (k.name.lower(), *gguf.GGML_QUANT_SIZES[k]) for k in gguf.GGMLQuantizationType}
    ours = {number: (t.name, t.block_len, t.block_bytes) for number, t in GGML_TYPES.items()}
    common = ours.keys() & theirs.keys()
    assert len(common) > 25
    assert {n: ours[n] for n in common} == {n: theirs[n] for n in common}
    assert {t.name for t in GGML_TYPES.values() if t.is_supported} == OURS
    for name in OURS:
        (found,) = (t for t in GGML_TYPES.values() if t.name == name)
        assert (found.block_len, found.block_bytes) == (FORMATS[name].block_len, FORMATS[name].block_bytes)


def test_bf16_mxfp4_and_unsupported_formats() -> None:
    values = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    blocks = MXFP4.pack(np.arange(-64, 64, dtype=np.float32).reshape(2, 64))
    stored = [
        Tensor("b", (2,), 30, values.tobytes()),
        Tensor("m", (64, 2), 39, blocks.data.tobytes()),
        Tensor("n", (64,), 40, bytes(36)),
    ]
    file = parse_gguf(File({}, stored).build(), HERE)
    assert file.read("b").tolist() == [1.5, -2.0]
    read = file.read("m")
    assert isinstance(read, Packed)
    assert np.array_equal(read.unpack(), blocks.unpack())
    entry = file.tensors["n"]
    assert (entry.format, entry.is_supported) == ("nvfp4", False)  # ggml's nvfp4 is not ours
    with pytest.raises(BadInput, match=r"x\.gguf: tensor n is format nvfp4"):
        file.read("n")
    with pytest.raises(BadInput, match=r"x\.gguf: tensor z is missing"):
        file.read("z")


def _lie(**changes: object) -> Callable[[], bytes]:
    return lambda: File({"k": (U32, 1)}, [tensor("t", (2, 32))], **changes).build()  # type: ignore[arg-type]


def _one(t: Tensor, *more: Tensor) -> Callable[[], bytes]:
    return lambda: File({}, [t, *more]).build()


def _key(kind: int, rest: bytes) -> Callable[[], bytes]:
    return lambda: File(num_keys=1, extra_keys=struct.pack("<Q", 1) + b"k" + struct.pack("<I", kind) + rest).build()


DEEP = struct.pack("<IQ", ARRAY, 1) * 40 + struct.pack("<IQ", U8, 0)
WRONG: dict[str, tuple[Callable[[], bytes], str]] = {
    "another file": (_lie(magic=b"PK\3\4"), "not a GGUF file"),
    "version 1": (_lie(version=1), "version is 1, but must be 2 or 3"),
    "big-endian": (_lie(version=3 << 24), "big-endian"),
    "tensor count": (_lie(num_tensors=2**63), "tensor count is 9223372036854775808, but must be at most 65536"),
    "tensor count past the end": (_lie(num_tensors=60000), "tensor count is 60000, but must be at most what"),
    "key count": (_lie(num_keys=2**64 - 1), "metadata count"),
    "key count past the end": (_lie(num_keys=60000), "metadata count is 60000"),
    "string length": (_key(STRING, struct.pack("<Q", 2**64 - 1)), "a string of 18446744073709551615 bytes"),
    "string past the end": (_key(STRING, struct.pack("<Q", 1000) + b"abc"), "1000 bytes at"),
    "not UTF-8": (_key(STRING, struct.pack("<Q", 2) + b"\xff\xfe"), "not UTF-8"),
    "value type": (_key(13, b"\0" * 8), "value type 13"),
    "array type": (_key(ARRAY, struct.pack("<IQ", 99, 1) + b"\0" * 8), "array of value type 99"),
    "array length": (_key(ARRAY, struct.pack("<IQ", U8, 2**40)), "1099511627776, but must be at most 4194304"),
    "array past the end": (_key(ARRAY, struct.pack("<IQ", U64, 4000)), "4000, but must be at most what"),
    "strings past the end": (_key(ARRAY, struct.pack("<IQQ", STRING, 2, 2**62) + b"\0" * 99), r"metadata k\[0\]"),
    "nesting": (_key(ARRAY, DEEP), "nested 5 deep"),
    "bool": (_key(BOOL, b"\2"), "a bool of value 2"),
    "bools": (_key(ARRAY, struct.pack("<IQ", BOOL, 2) + b"\1\7"), "a bool of value 7"),
    "duplicate key": (
        lambda: File(
            {"k": (U32, 1)}, num_keys=2, extra_keys=struct.pack("<Q", 1) + b"k" + struct.pack("<II", U32, 1)
        ).build(),
        "metadata k is the same key twice",
    ),
    "duplicate tensor": (_one(tensor("t", (32,)), tensor("t", (32,))), "tensor t is the same name twice"),
    "alignment 0": (lambda: File({"general.alignment": (U32, 0)}).build(), "general.alignment is 0"),
    "alignment 24": (lambda: File({"general.alignment": (U32, 24)}).build(), "a power of two"),
    "alignment text": (lambda: File({"general.alignment": (STRING, "x")}).build(), "general.alignment"),
    "alignment huge": (lambda: File({"general.alignment": (U64, 2**63)}).build(), "general.alignment"),
    "no dimensions": (_one(Tensor("t", (), 0, b"\0" * 4)), "0 dimensions"),
    "five dimensions": (_one(Tensor("t", (1, 1, 1, 1, 1), 0, b"\0" * 4)), "5 dimensions"),
    "dimension 0": (_one(Tensor("t", (0,), 0, b"")), "tensor t has 0 bytes"),
    "dimensions overflow": (
        _one(Tensor("t", (2**32, 2**32, 2**32), 0, b"\0" * 64)),
        "tensor t has 316912650057057350",
    ),
    "dimensions wrap to fit": (_one(Tensor("t", (2**62, 4), 0, b"\0" * 64)), "tensor t has 7"),
    "type": (_one(Tensor("t", (4,), 99, b"\0" * 16)), "ggml type number 99"),
    "removed type": (_one(Tensor("t", (4,), 4, b"\0" * 16)), "ggml type number 4"),
    "ragged rows": (_one(Tensor("t", (33,), 8, b"\0" * 64)), "rows of 33, but must have a multiple of q8_0's 32"),
    "unaligned offset": (_one(Tensor("t", (4,), 0, b"\0" * 16, offset=4)), "offset 4, but must be a multiple"),
    "offset past the end": (_one(Tensor("t", (4,), 0, b"\0" * 16, offset=2**40)), "there is a hole"),
    "overlap": (_one(tensor("a", (64,)), Tensor("b", (4,), 0, b"\0" * 16, offset=32)), "tensor b .* overlaps"),
    "hole": (_one(Tensor("t", (4,), 0, b"\0" * 256, offset=64)), "there is a hole"),
    "bytes after the end": (lambda: File({}, [tensor("t", (32,))]).build() + b"\0" * 64, "after the last tensor"),
    "tensor name": (_one(tensor("n" * 300, (4,))), "name of tensor 0 is a string of 300 bytes"),
    "empty": (lambda: b"", "magic"),
    "only the magic": (lambda: b"GGUF", "version"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_give_one_clear_line_and_no_large_allocation(name: str) -> None:
    build, expected = WRONG[name]
    data = build()
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match=expected) as caught:
            parse_gguf(data, HERE)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith("x.gguf: ")
    assert "\n" not in str(caught.value)


def test_every_truncation_is_refused() -> None:
    data = tiny_model().build()
    points = {*range(0, len(data) - 32, max(1, len(data) // 997)), *range(200), len(data) - 33}
    for num_bytes in sorted(points):
        with pytest.raises(BadInput):
            parse_gguf(data[:num_bytes], HERE)


def test_files_that_are_no_files(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for path, expected in ((tmp_path / "nowhere", "exists"), (tmp_path, "regular file"), (empty, "0 bytes")):
        with pytest.raises(BadInput, match=expected):
            open_gguf(path)
