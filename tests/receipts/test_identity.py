"""Which model made an answer: hashes of its files, computed once, and never of files that have changed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from samebits import LLM, SamplingParams
from samebits.core.errors import BadInput
from samebits.loaders.files import ModelFile, facts_of, open_file, read_template
from samebits.loaders.obtain import cached_models
from samebits.receipts import identity as room
from samebits.receipts.identity import identity, people_name
from samebits.receipts.record import Model


@pytest.fixture
def path(model_path: Path, tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    return Path(shutil.copy(model_path, tmp_path / "mine" / "model.gguf"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "caches" / "models"
    monkeypatch.setenv("SAMEBITS_CACHE", str(folder))
    return folder


def known(path: Path) -> Model:
    return identity("m", path, facts_of(open_file(path)))


def forbid_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> str:
        raise AssertionError(f"{path} is hashed again")

    monkeypatch.setattr(room, "file_sha256", refuse)


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


def notes(cache: Path) -> list[Path]:
    return list((cache / room.NOTES_FOLDER).iterdir())


def test_nothing_is_written_beside_a_model(path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = known(path)
    assert list(path.parent.iterdir()) == [path]
    assert len(notes(cache)) == 1
    forbid_hashing(monkeypatch)
    assert known(path) == first
    assert cached_models() == []


def test_a_receipt_writes_nothing_beside_its_model(path: Path, cache: Path) -> None:
    llm = LLM(path, context_len=64)
    assert llm.generate(["a"], SamplingParams(max_tokens=2, receipt=True, seed=1))[0].receipt is not None
    assert list(path.parent.iterdir()) == [path]
    assert len(notes(cache)) == 1


def test_a_cache_that_cannot_be_written_is_computed_anew(path: Path, cache: Path) -> None:
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("")  # a file where the folder should be: nobody can write there, not even root
    assert known(path) == known(path)
    assert list(path.parent.iterdir()) == [path]


def copied(path: Path, target: Path) -> None:
    """Another file with the same size and mtime."""
    shutil.copy2(path, target)
    data = bytearray(target.read_bytes())
    data[-1] ^= 1
    target.write_bytes(data)
    os.utime(target, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))


def test_another_path_or_another_inode_is_another_key(path: Path) -> None:
    first, other = known(path), path.with_name("other.gguf")
    copied(path, other)
    assert known(other).weights_sha256 != first.weights_sha256
    other.replace(path)
    assert known(path).weights_sha256 == hashlib.sha256(path.read_bytes()).hexdigest() != first.weights_sha256


def test_other_bytes_in_place_with_the_old_mtime_are_another_key(path: Path) -> None:
    """As programs leave it that copy a file onto another one and then set its mtime."""
    first, before = known(path), path.stat()
    with path.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(bytes([path.read_bytes()[-1] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
    assert known(path).weights_sha256 == hashlib.sha256(path.read_bytes()).hexdigest() != first.weights_sha256


def test_old_notes_go(path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_NOTES", 3)
    for step in range(1, 6):
        os.utime(path, ns=(step, step))
        known(path)
    newest = max(notes(cache), key=lambda note: note.stat().st_mtime_ns)
    assert len(notes(cache)) == 3
    assert json.loads(newest.read_text())["weights_sha256"] == known(path).weights_sha256


def test_writers_at_once_leave_whole_notes(path: Path, cache: Path) -> None:
    """Every reader finds no note or a whole one, and no writer's part stays behind."""
    first = known(path)
    (note,) = notes(cache)
    content = json.loads(note.read_text())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: room._keep(note, content), range(100)))
        assert all(pool.map(lambda _: room._read_note(note) == content, range(100)))
    assert (notes(cache), known(path)) == ([note], first)


@pytest.mark.parametrize("text", ["", "[]", "{}", "3", '{"weights_sha256": "abc"}', "[" * 100_000])
def test_a_broken_note_is_no_note(path: Path, cache: Path, text: str) -> None:
    first = known(path)
    (note,) = notes(cache)
    note.write_text(text)
    assert known(path) == first
    assert json.loads(note.read_text())["weights_sha256"] == first.weights_sha256


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


@pytest.mark.parametrize(
    ("key", "value", "changed"),
    [
        ("tokenizer.chat_template.tool_use", "T", {"chat_template_sha256"}),
        ("tokenizer.chat_template.rag", "R", set()),
        ("tokenizer.samebits.rstrip_token_ids", np.array([1], np.int32), {"tokenizer_sha256"}),
        ("general.name", "phi-3 mini", {"tokenizer_sha256"}),
        ("general.name", "mini", set()),
    ],
)
def test_what_changes_prompts_is_in_the_hashes(path: Path, key: str, value: object, changed: set[str]) -> None:
    file = open_file(path)
    before = hashes_of(file)
    file.metadata[key] = value  # type: ignore[union-attr, index]
    assert {name for name, value in hashes_of(file).items() if before[name] != value} == changed


def hashes_of(file: ModelFile) -> dict[str, str | None]:
    template = read_template(file)
    text = "" if template is None else template.whole_source
    return {"tokenizer_sha256": room._tokenizer_sha256(file), "chat_template_sha256": text}


def test_names_are_no_paths(path: Path) -> None:
    assert people_name(path, path) == people_name(str(path), path) == "model.gguf"
    assert people_name("smollm2", path) == "smollm2"
