"""A GGUF model in parts is the model in one file; parts that do not belong together are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf_writer import U16, File, tensor, tiny_model

from samebits.core.errors import BadInput
from samebits.core.format import Packed
from samebits.loaders.gguf_parts import part_names
from samebits.models.checkpoint import open_checkpoint

COUNT = 3


def parts_of(file: File) -> list[File]:
    """The first with the metadata and no tensor, as splitters write it; the others with every other tensor."""
    made = []
    for number in range(COUNT):
        split = {
            "split.no": (U16, number),
            "split.count": (U16, COUNT),
            "split.tensors.count": (U16, len(file.tensors)),
        }
        metadata = {**file.metadata, **split} if number == 0 else split
        made.append(replace(file, metadata=metadata, tensors=file.tensors[number - 1 :: 2] if number else []))
    return made


def write_parts(folder: Path, parts: list[File]) -> list[Path]:
    names = part_names(f"m-00001-of-{COUNT:05d}.gguf")
    return [part.write(folder / name) for part, name in zip(parts, names, strict=True)]


@pytest.mark.parametrize("opened", range(COUNT))
def test_parts_are_one_model(tmp_path: Path, opened: int) -> None:
    file = tiny_model()
    whole = open_checkpoint(file.write(tmp_path / "whole.gguf"))
    split = open_checkpoint(write_parts(tmp_path, parts_of(file))[opened])
    assert split.config == whole.config
    assert split.tensors == whole.tensors
    for name in whole.tensors:
        a, b = (x.data if isinstance(x, Packed) else x for x in (whole.tensor(name), split.tensor(name)))
        assert np.array_equal(a, b)
        split.release(name)
    assert split.tokenizer().encode("a") == whole.tokenizer().encode("a")


def other_count(parts: list[File]) -> None:
    parts[1].metadata["split.count"] = (U16, 4)


def other_number(parts: list[File]) -> None:
    parts[2].metadata["split.no"] = (U16, 1)


def no_number(parts: list[File]) -> None:
    del parts[1].metadata["split.no"]


def twice(parts: list[File]) -> None:
    parts[2].tensors.append(parts[1].tensors[0])


def one_more(parts: list[File]) -> None:
    parts[2].tensors.append(tensor("more", (16,)))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (other_count, r"00002-of-00003\.gguf: split\.count is 4, but must be 3"),
        (other_number, r"00003-of-00003\.gguf: split\.no is 1, but must be 2"),
        (no_number, r"00002-of-00003\.gguf: split\.no is missing"),
        (twice, r"00003-of-00003\.gguf: tensor .* is in two parts, but must be one tensor of each name"),
        (one_more, r"00001-of-00003\.gguf: split\.tensors\.count is \d+, but must be \d+, as many as the parts hold"),
    ],
)
def test_parts_that_do_not_belong_together(tmp_path: Path, damage: Callable[[list[File]], None], message: str) -> None:
    parts = parts_of(tiny_model())
    damage(parts)
    with pytest.raises(BadInput, match=message):
        open_checkpoint(write_parts(tmp_path, parts)[0])


def test_a_part_that_is_missing_and_one_under_another_name(tmp_path: Path) -> None:
    paths = write_parts(tmp_path, parts_of(tiny_model()))
    paths[1].rename(tmp_path / "elsewhere.gguf")
    with pytest.raises(BadInput, match=r"00002-of-00003\.gguf: file is missing: it must be a file that exists"):
        open_checkpoint(paths[0])
    with pytest.raises(BadInput, match=r"split\.count is 3, but must be 1, as many as the file's name says"):
        open_checkpoint(paths[0].rename(tmp_path / "alone.gguf"))


@pytest.mark.parametrize("name", ["m-00000-of-00003.gguf", "m-00004-of-00003.gguf", "m-00001-of-99999.gguf"])
def test_impossible_numbers(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="must be a part from 1 to the number of parts"):
        open_checkpoint(tiny_model().write(tmp_path / name))


def test_all_parts_together_cost_what_one_file_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_parts(tmp_path, parts_of(tiny_model()))
    least = paths[0].stat().st_size  # the first part holds no tensor
    monkeypatch.setattr("samebits.loaders.gguf_parts.MAX_HEADER_BYTES", least + 10)
    paths[2].unlink()  # it is not looked for any more
    with pytest.raises(
        BadInput, match=rf"00002-of-00003\.gguf: header has \d+ bytes so far, but must have {least + 10} in all"
    ):
        open_checkpoint(paths[0])
