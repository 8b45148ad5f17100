from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import Command, write_tiny

from samebits.cli.main import main


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The folder of a tiny checkpoint of an architecture, written once."""
    root = tmp_path_factory.mktemp("models")

    def folder(model_type: str) -> str:
        path: Path = root / model_type
        return str(path if path.exists() else write_tiny(path, model_type))

    return folder


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `samebits ...` in this process: (exit status, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["samebits", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return run
