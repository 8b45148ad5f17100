"""Which model made an answer: hashes of its files, computed once, and never of files that have changed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from samebits.core.errors import BadInput
from samebits.loaders.files import facts_of, open_file
from samebits.loaders.obtain import IDENTITY_NOTE, cached_models
from samebits.receipts import identity as room
from samebits.receipts.identity import identity, people_name
from samebits.receipts.record import Model


@pytest.fixture
def path(model_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(model_path, tmp_path / "model.gguf"))


def known(path: Path) -> Model:
    return identity("m", path, facts_of(open_file(path)))


def forbid_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> str:
        raise AssertionError(f"{path} is hashed again")

    monkeypatch.setattr(room, "_file_sha256", refuse)


def test_of_one_file_it_is_what_sha256sum_prints(path: Path) -> None:
    found = known(path)
    assert found.weights_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.tokenizer_sha256 is not None
    assert found.chat_template_sha256 is not None


def test_it_is_computed_once_and_again_when_the_file_changes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = known(path)
    with monkeypatch.context() as patched:
        forbid_hashing(patched)
        assert known(path) == first
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))
    second = known(path)
    assert second.weights_sha256 == hashlib.sha256(data).hexdigest() != first.weights_sha256
    assert second.tokenizer_sha256 == first.tokenizer_sha256


def test_a_folder_that_cannot_be_written_has_its_note_in_the_cache(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path / "cache"))
    beside = path.with_name(path.name + IDENTITY_NOTE)
    beside.mkdir()  # nothing can be written there, whoever runs this
    first = known(path)
    forbid_hashing(monkeypatch)
    assert known(path) == first
    assert cached_models() == []


@pytest.mark.parametrize("note", ["", "[]", "{}", '{"files": {}}', None])
def test_a_broken_note_is_no_note(path: Path, note: str | None) -> None:
    first = known(path)
    beside = path.with_name(path.name + IDENTITY_NOTE)
    if note is None:
        note = json.dumps({**json.loads(beside.read_text()), "weights_sha256": "abc"})
    beside.write_text(note)
    assert known(path) == first


def test_a_file_that_was_written_after_it_was_loaded_is_refused(path: Path) -> None:
    facts = facts_of(open_file(path))
    os.utime(path, ns=(1, 1))
    with pytest.raises(BadInput, match="written after it was loaded"):
        identity("m", path, facts)


def test_of_a_folder_it_is_the_hash_of_sha256sums_lines(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"w": np.zeros(4, np.float32)}, folder / "model.safetensors")
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}")
    found = known(folder)
    sums = (f"{hashlib.sha256((folder / n).read_bytes()).hexdigest()}  {n}\n" for n in sorted(os.listdir(folder)))
    weights = "".join(line for line in sums if "tokenizer" not in line)
    assert found.weights_sha256 == hashlib.sha256(weights.encode()).hexdigest()
    assert found.tokenizer_sha256 is not None
    assert found.chat_template_sha256 is None
    before = found.tokenizer_sha256
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    assert known(folder).weights_sha256 != found.weights_sha256
    assert known(folder).tokenizer_sha256 == before


def test_names_are_no_paths(path: Path) -> None:
    assert people_name(path, path) == people_name(str(path), path) == "model.gguf"
    assert people_name("smollm2", path) == "smollm2"
