"""Completion in a real shell, and the manual page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from samebits.cli.commands import COMMANDS
from samebits.cli.main import app
from samebits.cli.man_page import man_page

PAGE = Path(__file__).parents[2] / "docs" / "samebits.1"


def completed(words: str) -> list[str]:
    """What bash offers for a line whose last word is being typed."""
    script = 'eval "$(samebits completions bash)"; COMP_WORDS=($0); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))'
    show = '_samebits_completion samebits; printf "%s\\n" "${COMPREPLY[@]}"'
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    call = ["bash", "-c", f"{script}; {show}", words]
    done = subprocess.run(
        call, capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": path}, check=True
    )
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("samebits s", ["score", "serve", "support", "shader"]),
        ("samebits chat --max", ["--max-tokens", "--max-model-len", "--max-sequences", "--max-batch-tokens"]),
        ("samebits bench sch", ["schedule"]),
        ("samebits help s", ["score", "serve", "support", "shader"]),
        ("samebits help bench sch", ["schedule"]),
        ("samebits help chat x", []),
        ("samebits bench model --dec", ["--decode-tokens"]),
    ],
)
def test_bash_completes_commands_and_options(words: str, expected: list[str]) -> None:
    assert completed(words) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str) -> None:
    script = CliRunner().invoke(app, ["completions", shell]).stdout
    assert f"_SAMEBITS_COMPLETE={shell}_complete" in script


def test_another_shell_is_refused_in_a_line() -> None:
    result = CliRunner().invoke(app, ["completions", "tcsh"])
    assert str(result.exception) == "SHELL is 'tcsh', but must be one of bash, zsh, fish"


def test_the_manual_page_is_current() -> None:
    assert PAGE.read_text() == man_page(), "run `make man`"


def test_the_manual_page_names_every_command_and_can_be_shown() -> None:
    if shutil.which("groff") is None:
        pytest.skip("there is no groff here")
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", str(PAGE)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    shown = re.sub(".\x08", "", done.stdout)  # bold is overstruck
    assert [name for name in COMMANDS if f"   samebits {name}" not in shown] == []
