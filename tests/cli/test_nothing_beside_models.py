"""No command writes beside a model: notes go into the cache folder, and output where it was asked for."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from samebits.cli.main import app

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("engine", "loaders")]

FOLDER = Path(__file__).parents[1] / "models" / "data" / "llama"
MODEL, OUT = "MODEL", "OUT"  # stand for the model's path and a folder for output
OF_FILES = (
    ("inspect", MODEL),
    ("explain", MODEL),
    ("generate", "hi", "--model", MODEL, "--max-tokens", "2", "--receipt", f"{OUT}/receipt.jsonl"),
    ("replay", f"{OUT}/receipt.jsonl", "--model", MODEL),
    ("score", "hi", "--model", MODEL),
    ("trace", MODEL, "--backend", "reference"),
    ("quantize", MODEL, f"{OUT}/small.gguf", "--type", "Q8_0"),
)
OF_FOLDERS = (("inspect", MODEL), ("explain", MODEL), ("convert", MODEL, f"{OUT}/whole.gguf"))


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def check(calls: tuple[tuple[str, ...], ...], model: Path, home: Path, out: Path) -> None:
    """Run the commands; each must succeed and leave the files of `home` as they were."""
    before = sorted(home.rglob("*"))
    for call in calls:
        done = CliRunner().invoke(app, [text.replace(MODEL, str(model)).replace(OUT, str(out)) for text in call])
        assert done.exit_code == 0, (call, done.output)
        assert sorted(home.rglob("*")) == before, call


def test_beside_a_file(tmp_path: Path, out: Path) -> None:
    from random_tiny import write_random_tiny

    home = tmp_path / "home"
    home.mkdir()
    check(OF_FILES, write_random_tiny(home / "random.gguf"), home, out)


def test_in_a_folder(tmp_path: Path, out: Path) -> None:
    home = Path(shutil.copytree(FOLDER, tmp_path / "home"))
    check(OF_FOLDERS, home, home, out)
