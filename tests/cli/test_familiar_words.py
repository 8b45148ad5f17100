"""Commands and flags that people know from Ollama, llama.cpp and vLLM."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from samebits.cli.commands import ALIASES, COMMANDS, MAX_SUMMARY_CHARS, SECTIONS, CommandLine
from samebits.cli.gpu_layers import all_or_none
from samebits.cli.main import app
from samebits.cli.model_options import backend_for_layers
from samebits.cli.model_words import model_and_message, names_a_model
from samebits.core.errors import BadInput, Unavailable

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    from gguf_writer import tiny_model

    return str(tiny_model().write(tmp_path_factory.mktemp("familiar") / "tiny.gguf"))


def answer(*words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--json", "-n", "3", "--temperature", "0"])
    assert result.exit_code == 0, result.output + str(result.exception)
    return str(json.loads(result.stdout)["answers"][0]["logits_sha256"])


def test_every_way_to_name_the_model_and_the_message_gives_the_same_answer(model: str) -> None:
    spellings = [
        ("chat", "hi", "--model", model),
        ("chat", model, "hi"),
        ("run", model, "hi"),
        ("run", model, "--prompt", "hi"),
        ("chat", "-m", model, "-p", "hi", "-t", "1", "-c", "128", "--temp", "0"),
        ("chat", "-m", model, "-p", "hi", "--ctx-size", "128", "-ngl", "0"),
        ("chat", "-m", model, "-p", "hi", "--max-model-len", "128"),
    ]
    assert len({answer(*words) for words in spellings}) == 1
    assert answer("generate", "-m", model, "-p", "hi") == answer("generate", "hi", "--model", model)


def test_one_word_is_a_model_only_if_it_names_one(model: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    folder = tmp_path / "folder"
    folder.mkdir()
    assert not names_a_model(str(folder))
    (folder / "config.json").write_text("{}")
    assert all(map(names_a_model, (model, "smollm2", str(folder))))
    for message in ("hi", "smollm", str(tmp_path / "notes.txt"), str(tmp_path), "x" * 5000, "a\0b", ""):
        assert model_and_message(message, None) == (None, message)
    assert model_and_message("smollm2", None) == ("smollm2", None)
    for first in (model, "smollm2", "owner/repo", str(folder)):
        assert model_and_message(first, "hi") == (first, "hi")
    for first in ("Hello", "x" * 5000, "a\0b"):
        with pytest.raises(BadInput, match="put a message of several words in quotes"):
            model_and_message(first, "there")
    assert model_and_message(None, None) == (None, None)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["chat", "smollm2", "hi", "--model", "x"], "MODEL and --model are both given: give one of them"),
        (["run", "smollm2", "hi", "-p", "x"], "MESSAGE and --prompt are both given: give one of them"),
        (["generate", "hi", "-p", "x"], "PROMPT and --prompt are both given: give one of them"),
        (["run", "smollm2", " "], "MESSAGE is missing: it must be some text"),
        (["chat", "smollm2", "-p", ""], "MESSAGE is missing: it must be some text"),
        (["serve", "smollm2", "-m", "x"], "MODEL and --model are both given: give one of them"),
        (
            ["chat", "hi", "-ngl", "some"],
            "-ngl is some, but must be 0, all or at least 99: layers cannot be split between",
        ),
        (["chat", "hi", "-ngl", "9" * 5000], "-ngl is 99999999999999999999, but must be 0, all or at least 99"),
        (["chat", "hi", "-ngl", "0", "--backend", "cuda"], "-ngl is 0, but must be in agreement with --backend cuda"),
    ],
)
def test_what_contradicts_itself_is_refused_in_a_line(words: list[str], line: str) -> None:
    assert line in str(CliRunner().invoke(app, words).exception)


def test_a_number_of_layers_means_all_if_the_model_has_no_more(model: str) -> None:
    assert [all_or_none(text, model) for text in ("0", "all", "2", "33", "99", "999")] == ["0", *["all"] * 5]
    assert all_or_none("99", "hf:not/here") == "all"
    for text, name, least in (("1", model, 2), ("98", "hf:not/here", 99)):
        with pytest.raises(BadInput, match=f"^-ngl is {text}, but must be 0, all or at least {least}: "):
            all_or_none(text, name)


def test_the_model_s_layers_are_counted_wherever_it_is_named(model: str) -> None:
    for words in (
        ["chat", model, "hi"],
        ["run", model, "hi"],
        ["chat", "hi", "-m", model],
        ["generate", "hi", "-m", model],
        ["inspect", model],
        ["inspect", str(Path(model).parent)],  # a folder, which is no word that names a model
        ["warm", model],
    ):
        assert "at least 2: " in str(CliRunner().invoke(app, [*words, "-ngl", "1"]).exception)


def test_all_layers_need_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from samebits.backends import discovery

    here = {"rocm": discovery.Found("rocm", "built in", object(), None)}  # type: ignore[arg-type]
    absent = discovery.Found("x", "built in", None, None, "not here")
    monkeypatch.setattr(discovery, "get", lambda name: here.get(name, absent))
    assert backend_for_layers("all", None) == "rocm"
    assert backend_for_layers("all", "cuda") == "cuda"
    assert backend_for_layers("0", None) is None
    assert backend_for_layers("0", "reference") == "reference"
    assert backend_for_layers(None, "cuda") == "cuda"
    here.clear()
    with pytest.raises(Unavailable, match="no GPU backend can run here"):
        backend_for_layers("all", None)
    with pytest.raises(BadInput):
        backend_for_layers("all", "cpu")


@pytest.mark.parametrize(("word", "meant"), [("srve", "serve"), ("chta", "chat"), ("quantise", "quantize")])
def test_a_typo_suggests_the_right_command(word: str, meant: str) -> None:
    result = CliRunner().invoke(app, [word])
    assert f"no such command '{word}' (did you mean '{meant}'?)" in result.output


def test_the_help_has_every_command_once_and_no_summary_is_cut() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    lines = [line.strip() for line in shown.splitlines()]
    for section, entries in SECTIONS.items():
        assert f"{section}:" in lines
        for name, entry in entries.items():
            assert [line for line in lines if line.startswith(name) and line.endswith(entry.summary)] != [], name
            assert len(entry.summary) <= MAX_SUMMARY_CHARS
    assert "..." not in shown.replace("[ARGS]...", "")


def test_aliases_are_the_commands_themselves() -> None:
    line = CommandLine()
    context = click.Context(line)
    assert not set(ALIASES) & set(COMMANDS)
    assert all(line.get_command(context, a) is line.get_command(context, n) for a, n in ALIASES.items())


def test_help_prints_what_a_commands_help_prints() -> None:
    assert CliRunner().invoke(app, ["help", "bench", "serve"]).stdout == (
        CliRunner().invoke(app, ["bench", "serve", "--help"]).stdout
    )
    assert CliRunner().invoke(app, ["help"]).stdout == CliRunner().invoke(app, ["--help"]).stdout
    assert "no such command 'sreve' (did you mean 'serve'?)" in CliRunner().invoke(app, ["help", "sreve"]).output
    assert "samebits chat has no command 'x'" in CliRunner().invoke(app, ["help", "chat", "x"]).output


def test_ps_lists_servers_that_run_and_forgets_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from samebits.cli.server_notes import ServerNote, all_notes, noted, notes_dir

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert "no server is running" in CliRunner().invoke(app, ["ps"]).stdout
    with noted("tiny", "http://127.0.0.1:9"), noted("other", "http://[::1]:9"):
        (notes_dir() / "broken.json").write_text('{"model": 1}')
        (notes_dir() / "gone.json").write_text(
            json.dumps({"model": "x", "address": "gone", "pid": 2**22 + 1, "started": 1.0})
        )
        rows = json.loads(CliRunner().invoke(app, ["ps", "--json"]).stdout)
        assert [(row["model"], row["pid"], row["state"]) for row in rows] == [
            ("tiny", os.getpid(), "does not answer"),
            ("other", os.getpid(), "does not answer"),
        ]
        assert not (notes_dir() / "gone.json").exists()
        later = ServerNote("later", "http://127.0.0.1:9", os.getpid(), 2.0)
        (notes_dir() / "http_127.0.0.1_9.json").write_text(json.dumps(later.__dict__))
    assert [note for _, note in all_notes()] == [later], "a server removes its own note alone"


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from samebits.cli.server_notes import notes_dir

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    notes_dir().mkdir(parents=True)
    return notes_dir()


@pytest.mark.parametrize(
    "odd",
    [
        {"model": "\x1b[31mred\x1b]0;title\x07"},
        {"model": "[/]\ud800"},
        {"address": "http://127.0.0.1:9/\r\nX: 1\x00"},
        {"address": "http://[::1:9"},
        {"started": float("-inf")},
        {"started": float("nan")},
        {"started": -1e308},
        {"pid": True},
    ],
    ids=repr,
)
def test_ps_survives_any_note(servers: Path, odd: dict[str, Any]) -> None:
    plain = {"model": "tiny", "address": "http://127.0.0.1:9", "pid": os.getpid(), "started": 1.0}
    (servers / "odd.json").write_text(json.dumps({**plain, **odd}))
    for words in (["ps"], ["ps", "--json"]):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.exception
        assert result.stdout.replace("\n", "").isprintable()
    assert isinstance(json.loads(result.stdout), list)


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes")
def test_ps_waits_for_no_pipe(servers: Path) -> None:
    os.mkfifo(servers / "pipe.json")
    (servers / "folder.json").mkdir()
    assert "no server is running" in CliRunner().invoke(app, ["ps"]).stdout


def test_ps_forgets_a_server_that_is_gone_whatever_its_file_is_called(servers: Path) -> None:
    gone = {"model": "x", "address": "http://127.0.0.1:9", "pid": 2**22 + 1, "started": 1.0}
    (servers / "elsewhere.json").write_text(json.dumps(gone))
    assert CliRunner().invoke(app, ["ps"]).exit_code == 0
    assert list(servers.iterdir()) == []


def test_a_state_folder_that_cannot_be_used_stops_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from samebits.cli.chat.editor import open_history
    from samebits.cli.server_notes import noted

    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with noted("tiny", "http://127.0.0.1:9"):
        assert CliRunner().invoke(app, ["ps"]).exit_code == 0
    open_history()

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    with noted("tiny", "http://127.0.0.1:9"):
        assert "HOME" in str(CliRunner().invoke(app, ["ps"]).exception)
    open_history()


def test_a_word_that_can_only_be_a_model_is_no_message() -> None:
    for word in ("./missing.gguf", "hf:owner/repo:Q4_K_M", "https://example.org/a.gguf", "missing.safetensors"):
        assert model_and_message(word, None) == (word, None)
    for message in ("what is a.gguf", "hf: what is it", "https://example.org/", "and/or"):
        assert model_and_message(message, None) == (None, message)


def test_layers_on_the_command_line_win_over_a_backend_of_the_environment(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMEBITS_BACKEND", "cuda")
    answer("run", model, "hi", "-ngl", "0")
    result = CliRunner().invoke(app, ["run", model, "hi", "-ngl", "0", "--backend", "cuda"])
    assert "in agreement with --backend cuda" in str(result.exception)
