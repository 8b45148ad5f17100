"""What all commands have in common: -h, -V, and what --json and --output mean."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import samebits
from samebits.cli.commands import whole_command_line
from samebits.cli.main import app, main

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))
GOLDEN = Path(__file__).parents[2] / "golden"  # all of them: hashes are compared, nothing is run


def commands(found: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, found
    for name, child in getattr(found, "commands", {}).items():
        yield from commands(child, (*path, name))


ALL = dict(commands(whole_command_line(), ()))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    from gguf_writer import tiny_model

    return str(tiny_model().write(tmp_path_factory.mktemp("conventions") / "tiny.gguf"))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_and_version_are_everywhere(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*path, "-h"])
    assert shown.exit_code == 0
    assert shown.stdout.startswith(" ".join(("Usage: samebits", *path)) + " [OPTIONS]")
    assert CliRunner().invoke(app, [*path, "-V"]).stdout.startswith(f"samebits {samebits.__version__},")


def test_json_is_a_flag_and_output_a_file() -> None:
    options = [o for c in ALL.values() for o in c.params if isinstance(o, click.Option)]
    with_json = [o for o in options if "--json" in o.opts]
    assert len(with_json) > 10
    assert all(o.is_flag for o in with_json)
    assert all(isinstance(o.type, click.Path) for o in options if "--output" in o.opts)


def test_no_two_options_of_a_command_have_one_name() -> None:
    for path, command in ALL.items():
        names = [name for o in command.params for name in (*o.opts, *o.secondary_opts)]
        assert len(names) == len(set(names)), path


REPORTS = {
    "devices": "devices",
    "support": "support --op add --backend reference",
    "inspect": "inspect MODEL",
    "explain": "explain MODEL --backend reference",
    "generate": "generate hi --model MODEL --max-tokens 2",
    "score": "score hi --model MODEL",
    "trace": "trace MODEL --tokens 5,6 --backend reference --layer 0 --filter norm",
    "diff": "diff MODEL --tokens 5,6 --backend reference",
    "verify": "verify --op add --case small-f32 --tier portable -j 1",
    "golden": "golden check GOLDEN --op add",
    "compare": "compare GOLDEN GOLDEN",
    "bench": "bench schedule --budgets dynamic --scenario mixed --seconds 1",
}


@pytest.mark.parametrize("name", REPORTS)
def test_json_is_all_that_stands_on_standard_output(model: str, tmp_path: Path, name: str) -> None:
    words = [model if word == "MODEL" else str(GOLDEN) if word == "GOLDEN" else word for word in REPORTS[name].split()]
    file = tmp_path / "report.json"
    result = CliRunner().invoke(app, [*words, "--json", "--output", str(file)])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == json.loads(file.read_text())
    nowhere = CliRunner().invoke(app, [*words, "--output", "/no/such/folder/x"])
    assert "--output is /no/such/folder/x, but must be a file in a folder that exists" in str(nowhere.exception)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            "chat --max-tokens x",
            "--max-tokens is 'x', but must be a whole number, 1 or more; see samebits chat --help",
        ),
        (
            "chat --max-sequences 0",
            "--max-sequences is '0', but must be a whole number from 1 to 4096; see samebits chat --help",
        ),
        ("generate hi --temperature nan", "'nan', but must be a number, 0 or more; see samebits generate --help"),
        ("chat --nope", "error: no such option '--nope'"),
        ("sing", "error: no such command 'sing'; see samebits --help"),
        ("inspect a b", "error: got unexpected extra argument (b); see samebits inspect --help"),
    ],
)
def test_a_mistake_in_the_call_is_one_line_that_names_the_help(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: str, line: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["samebits", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert line in said.err
    assert said.err.count("\n") == 1
