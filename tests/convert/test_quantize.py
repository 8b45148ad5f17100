"""Files in another format: which tensors are, which are not, and nothing under the new name before it is whole."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from convert_samples import prepared
from gguf_writer import U32, tiny_model

from samebits.convert import writing
from samebits.convert.gguf_bytes import OutTensor, string
from samebits.convert.quantize import quantized
from samebits.convert.types import FALLBACKS, FILE_TYPES, format_for
from samebits.convert.writing import OutFile, recoded, write
from samebits.core.errors import BadInput
from samebits.core.format import FORMATS
from samebits.loaders.gguf import open_gguf, raw_metadata
from samebits.models.checkpoint import open_checkpoint


def quiet(name: str, done: int, total: int) -> None:
    """A report that shows nothing."""


RULES = [
    ("token_embd.weight", (64, 512), "bf16", "q4_k", "q6_k"),
    ("output.weight", (64, 512), "bf16", "q4_0", "q6_k"),
    ("output.weight", (64, 512), "bf16", "q8_0", "q8_0"),
    ("output.weight", (64, 512), "f32", "f16", "f16"),
    ("output.weight", (64, 96), "f32", "q4_k", "q8_0"),
    ("blk.0.attn_q.weight", (64, 512), "bf16", "q4_k", "q4_k"),
    ("blk.0.attn_q.weight", (64, 576), "bf16", "q4_k", "q5_0"),
    ("blk.0.attn_q.weight", (64, 50), "bf16", "q4_k", "f16"),
    ("blk.0.attn_q.weight", (64, 50), "bf16", "q8_0", "f16"),
    ("blk.0.ffn_down_exps.weight", (8, 64, 256), "bf16", "q5_k", "q5_k"),
    ("blk.0.ffn_gate_inp.weight", (8, 256), "f32", "q4_k", "f32"),
    ("blk.0.attn_norm.weight", (512,), "bf16", "q4_k", "f32"),
    ("blk.0.attn_q.bias", (512,), "f16", "q4_k", "f32"),
    ("blk.0.ssm_conv1d.weight", (64, 4), "f32", "q8_0", "f32"),
    ("blk.0.ssm_in.weight", (64, 512), "f32", "q8_0", "q8_0"),
    ("blk.0.shortconv.conv.weight", (64, 3), "f32", "q8_0", "f32"),
    ("blk.0.shortconv.in_proj.weight", (64, 256), "f32", "q4_k", "q4_k"),
    ("rope_freqs.weight", (32,), "f32", "q8_0", "f32"),
]


@pytest.mark.parametrize(("name", "shape", "stored", "asked", "expected"), RULES)
def test_the_rule(name: str, shape: tuple[int, ...], stored: str, asked: str, expected: str) -> None:
    assert format_for(name, shape, stored, asked) == expected


def test_a_fallback_has_as_many_bits() -> None:
    for wanted, instead in FALLBACKS.items():
        bits = [8 * FORMATS[name].block_bytes / FORMATS[name].block_len for name in (wanted, instead)]
        assert bits[1] >= bits[0]
        assert FORMATS[instead].block_len == 32


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """A file of one matrix of whole super-blocks, one that is not, a vector, and metadata of every type."""
    rng = np.random.default_rng(1)
    arrays = {"a.weight": rng.normal(size=(40, 512)), "b.weight": rng.normal(size=(40, 96))}
    arrays["n_norm.weight"] = np.ones(96)
    writer = gguf.GGUFWriter(tmp_path / "wide.gguf", "llama")
    for kind in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
        getattr(writer, f"add_{kind}")(f"x.{kind}", 5)
    writer.add_float64("x.float64", 0.1)
    writer.add_array("x.strings", ["a", "é", ""])
    for name, array in arrays.items():
        writer.add_tensor(name, array.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "wide.gguf"


@pytest.mark.parametrize("asked", FILE_TYPES)
def test_every_type_is_written_and_read_by_others(wide: Path, tmp_path: Path, asked: str) -> None:
    out = tmp_path / "out.gguf"
    write(quantized(wide, asked), out, quiet)
    ours = open_gguf(out)
    assert ours.tensors["a.weight"].format == asked
    assert ours.metadata["general.file_type"] == FILE_TYPES[asked]
    before, after = raw_metadata(wide), raw_metadata(out)
    assert {key: after[key] for key in before} == before
    source = open_gguf(wide)
    for tensor in gguf.GGUFReader(out).tensors:
        theirs = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        mine: Any = ours.read(tensor.name)
        mine = mine.unpack() if hasattr(mine, "unpack") else mine.astype(np.float32)
        np.testing.assert_array_equal(theirs.reshape(mine.shape), mine)
        assert np.sqrt(np.mean((mine - source.read(tensor.name)) ** 2)) < 0.3  # of numbers around 1


def test_folders_are_converted_on_the_way(tmp_path: Path) -> None:
    out = tmp_path / "o.gguf"
    write(quantized(prepared("qwen2", tmp_path), "q8_0"), out, quiet)
    checkpoint = open_checkpoint(out)
    assert checkpoint.architecture.name == "qwen2"
    formats = {checkpoint.file.tensors[f"blk.0.{name}"].format for name in ("ffn_up.weight", "attn_k.weight")}
    assert formats == {"q8_0"}


def test_what_is_quantized_is_left_alone_unless_asked(wide: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "1.gguf", tmp_path / "2.gguf"
    write(quantized(wide, "q8_0"), first, quiet)
    with pytest.raises(BadInput, match=r"tensor a.weight is q8_0, but must be f32, f16 or bf16, or --requantize"):
        quantized(first, "q4_0")
    write(quantized(first, "q8_0"), second, quiet)  # the same again: the same bytes
    assert second.read_bytes() == first.read_bytes()
    write(quantized(first, "q4_0", may_requantize=True), second, quiet, may_replace=True)
    assert open_gguf(second).tensors["a.weight"].format == "q4_0"


def test_parts_become_one_file(tmp_path: Path) -> None:
    whole = tiny_model()
    for number, tensors in enumerate((whole.tensors[:-1], whole.tensors[-1:])):
        part = tiny_model(**{"split.count": (U32, 2), "split.no": (U32, number)})
        part.tensors = tensors
        part.write(tmp_path / f"m-0000{number + 1}-of-00002.gguf")
    out = tmp_path / "o.gguf"
    write(quantized(tmp_path / "m-00002-of-00002.gguf", "q8_0", may_requantize=True), out, quiet)
    before, after = open_checkpoint(tmp_path / "m-00001-of-00002.gguf"), open_checkpoint(out)
    assert after.file.tensors.keys() == before.file.tensors.keys()
    assert not [key for key in raw_metadata(out) if key.startswith("split.")]
    assert after.tokenizer().encode("hi aaaa") == before.tokenizer().encode("hi aaaa")


@pytest.mark.parametrize("fault", ["NaN", "interrupt"])
def test_a_fault_leaves_what_was_there(wide: Path, tmp_path: Path, fault: str) -> None:
    out = tmp_path / "out.gguf"
    out.write_bytes(b"before")
    file = quantized(wide, "q4_k")

    def read(name: str) -> Any:
        assert out.read_bytes() == b"before"  # while others are written
        if name != "b.weight":
            return file.read(name)
        if fault == "interrupt":
            raise KeyboardInterrupt
        return np.full((40, 96), np.nan, np.float32)

    with pytest.raises((BadInput, KeyboardInterrupt)):
        write(OutFile(file.metadata, file.tensors, read), out, quiet, may_replace=True)
    assert out.read_bytes() == b"before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.gguf", "wide.gguf"]


def test_float16_that_overflows_is_refused() -> None:
    with pytest.raises(BadInput, match=r"w: tensor is 70000, but must be values that f16 holds"):
        recoded(np.full((1, 4), 7e4, np.float32), "f16", "w")


def test_no_room_is_said_before_anything_is_written(tmp_path: Path) -> None:
    huge = OutTensor("w", (1 << 40, 1 << 20), "f32")
    with pytest.raises(BadInput, match=f"but must be on one with {1 << 62}"):
        write(OutFile({"x": string("y")}, [huge], lambda name: np.zeros(0)), tmp_path / "x", quiet)
    assert list(tmp_path.iterdir()) == []


def test_memory_is_bounded_by_slices_not_by_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "SLICE_ELEMENTS", 1 << 14)
    array = np.zeros((4096, 512), np.float16)
    file = OutFile({}, [OutTensor("w", array.shape, "q4_0")], lambda name: array)
    tracemalloc.start()
    write(file, tmp_path / "x.gguf", quiet)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20  # as float32 the tensor is 8 MiB


def test_progress_counts_bytes_up_to_all(wide: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    write(quantized(wide, "q4_0"), tmp_path / "x.gguf", lambda *report: told.append(report))
    done = [bytes_done for _, bytes_done, _ in told]
    assert done == sorted(done)
    assert [name for name, _, _ in told][:: len(told) - 1] == ["a.weight", "n_norm.weight"]
    assert told[-1][1] <= told[-1][2]
