"""The hint that names an extra fits how Samebits was installed."""

from __future__ import annotations

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
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


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (None, "pip install samebits[cuda]"),
        (folder(True).replace("/home/me", "/C:/Users/me"), 'pip install -e "C:/Users/me/my clone[cuda]"'),
        (
            json.dumps({"url": "file:///C:/w/samebits-1.whl", "archive_info": {}}),
            'pip install "samebits[cuda] @ file:///C:/w/samebits-1.whl"',
        ),
    ],
)
def test_the_command_on_windows_has_its_paths_and_quotes(
    text: str | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing.sys, "platform", "win32")
    installed: Any = Installed(text)
    assert installing.command_for(installed, "cuda") == command


@pytest.mark.skipif(sys.platform == "win32", reason="the programs are shell scripts")
@pytest.mark.parametrize(("status", "has_compiler"), [(0, True), (2, False)])
def test_a_mac_without_developer_tools_has_no_compiler(
    status: int, has_compiler: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("c++", "xcode-select"):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {status}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(installing.sys, "platform", "darwin")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert installing.native_advice().startswith("run `xcode-select") is not has_compiler


@pytest.mark.parametrize(
    ("platform", "compiler", "advice"),
    [
        ("linux", None, "install a C++ compiler (on Debian: apt install g++), then run `pip install --force-reinstall"),
        ("darwin", None, "run `xcode-select --install` for a C++ compiler, then run `pip install --force-reinstall"),
        ("freebsd14", None, "install a C++ compiler, then run `pip install --force-reinstall"),
        ("linux", "/usr/bin/c++", "run `pip install --force-reinstall"),
        ("win32", "C:\\c++.exe", "install a win_amd64 wheel; pip on Windows cannot compile the native kernels"),
    ],
)
def test_the_advice_for_native_kernels_fits_the_machine(
    platform: str, compiler: str | None, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing.sys, "platform", platform)
    monkeypatch.setattr(installing.shutil, "which", lambda name: compiler)
    assert installing.native_advice().startswith(advice)


def test_rebuilding_replaces_a_package_of_the_same_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installing, "install_command", lambda: "pip install -e '/a b'")
    monkeypatch.setattr(installing.shutil, "which", lambda name: None)
    assert "`pip install --force-reinstall --no-deps --no-cache-dir -e '/a b'`" in installing.native_advice()
