"""The hint that names an extra fits how Samebits was installed."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest

from samebits.core import installing


class Installed:
    def __init__(self, text: str | None) -> None:
        self.text = text

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self.text


def folder(editable: bool) -> str:
    return json.dumps({"url": "file:///home/me/my%20clone", "dir_info": {"editable": editable}})


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (None, "pip install 'samebits[cuda]'"),
        ("not JSON", "pip install 'samebits[cuda]'"),
        ("[]", "pip install 'samebits[cuda]'"),
        (folder(True), "pip install -e '/home/me/my clone[cuda]'"),
        (folder(False), "pip install '/home/me/my clone[cuda]'"),
        (
            json.dumps({"url": "file:///w/samebits-1-cp312.whl", "archive_info": {}}),
            "pip install 'samebits[cuda] @ file:///w/samebits-1-cp312.whl'",
        ),
        (
            json.dumps({"url": "https://h.org/a.git", "vcs_info": {"vcs": "git", "commit_id": "0a1b"}}),
            "pip install 'samebits[cuda] @ git+https://h.org/a.git@0a1b'",
        ),
        (
            json.dumps(
                {
                    "url": "ssh://git@h.org/a.git",
                    "subdirectory": "py",
                    "vcs_info": {"vcs": "git", "commit_id": "0a1b", "requested_revision": "main"},
                }
            ),
            "pip install 'samebits[cuda] @ git+ssh://git@h.org/a.git@main#subdirectory=py'",
        ),
        (json.dumps({"url": "https://h.org/a.git", "vcs_info": {}}), "pip install 'samebits[cuda]'"),
    ],
)
def test_the_command_follows_how_it_was_installed(text: str | None, command: str) -> None:
    installed: Any = Installed(text)
    assert installing.command_for(installed, "cuda") == command


def test_a_source_tree_that_is_not_installed_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installing, "distribution", absent)
    pip, install, target = shlex.split(installing.install_command("server"))
    assert (pip, install) == ("pip", "install")
    assert target.endswith("[server]")
    assert (installing.Path(target.removesuffix("[server]")) / "pyproject.toml").is_file()


def test_without_an_extra_it_installs_the_package_alone() -> None:
    installed: Any = Installed(None)
    assert installing.command_for(installed, "") == "pip install samebits"
