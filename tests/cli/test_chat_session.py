"""`samebits chat` as a person uses it: typed at a real terminal, read from its screen."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "loaders")]
pytest.importorskip("termios", reason="terminals of this kind are Unix's")
from terminal import CTRL_C, CTRL_D, CTRL_J, ENTER, UP, Terminal  # noqa: E402

COMMANDS = (
    "/help",
    "/regenerate",
    "/reset, /clear",
    "/system",
    "/seed",
    "/save",
    "/load",
    "/model",
    "/quit, /bye, /exit",
)
PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"
Start = Callable[..., Terminal]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    from gguf_writer import tiny_model

    return str(tiny_model().write(tmp_path_factory.mktemp("session") / "tiny.gguf"))


@pytest.fixture
def start(model: str, tmp_path: Path) -> Iterator[Start]:
    """start(*options): a session that shows its first prompt; its history lies in tmp_path."""
    opened: list[Terminal] = []

    def begin(*options: str, num_tokens: int = 3) -> Terminal:
        common = ("--model", model, "--max-tokens", str(num_tokens))
        opened.append(Terminal("chat", *common, *options, XDG_STATE_HOME=str(tmp_path / "state")))
        opened[-1].wait_for("\n>")
        return opened[-1]

    yield begin
    for terminal in opened:
        terminal.close()


def read(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_conversation_is_typed_saved_and_remembered(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    terminal = start("--system", "a")
    terminal.send("hi" + ENTER)
    terminal.wait_for(": 3 tokens,")  # the status line: what the answer cost
    assert "tokens/s, context" in terminal.text
    terminal.send(f"one{CTRL_J}two{ENTER}")
    terminal.wait_for("\n. two")
    terminal.send(f"{PASTE_BEGIN}b\rc{PASTE_END}{ENTER}")
    terminal.wait_for("\n. c")
    terminal.send(f"/save {file}{ENTER}")
    terminal.wait_for("3 turns in")
    terminal.send(CTRL_D)
    assert terminal.wait_end() == 0
    settings, system, *messages = read(file)
    assert settings["settings"]["sampling"]["max_tokens"] == 3  # type: ignore[index]
    assert system == {"role": "system", "content": "a"}
    assert [m["role"] for m in messages] == ["user", "assistant"] * 3
    assert [m["content"] for m in messages if m["role"] == "user"] == ["hi", "one\ntwo", "b\nc"]

    history = tmp_path / "state" / "samebits" / "chat_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert stat.S_IMODE(history.parent.stat().st_mode) == 0o700
    again = start("--load", str(file), num_tokens=2)
    again.send(UP * 2)
    again.wait_for("\n> b\n. c")
    again.send(ENTER)
    again.wait_for(": 2 tokens,")  # what the command line states goes before what was saved
    again.send(f"/save {file}{ENTER}")
    again.wait_for("4 turns in")
    assert read(file)[: len(messages) + 1][1:] == [system, *messages[:-1]]


def test_commands_show_and_change_settings(start: Start, model: str, tmp_path: Path) -> None:
    terminal = start("--temperature", "0")
    terminal.send("/help" + ENTER)
    terminal.wait_for("Alt-Enter")
    assert all(f"\n{name} " in terminal.text for name in COMMANDS)
    for line, shown in (
        ("/system be brief", "system message: be brief"),
        ("/system none", "the template's own"),
        ("/seed 77", "seed 77"),
        ("/seed x", "/seed: seed is 'x', but must be a whole number"),
        ("/regenerate", "conversation is without an answer, but must be one with an answer"),
        ("/clear", "the conversation is forgotten"),
        ("/sing", "unknown command /sing; needs one of /help"),
        ("/save", "/save: file is missing: it must be /save FILE"),
        (f"/load {tmp_path}/none", "No such file or directory"),
        ("/model /no/such/file.gguf", "no such file or folder: /no/such/file.gguf"),
        (f"/model {model}", "tiny.gguf, a context of 128 tokens"),
    ):
        terminal.send(line + ENTER)
        terminal.wait_for(shown)
    terminal.send("//hi" + ENTER)
    terminal.wait_for(": 3 tokens,")
    terminal.send(f"/save {tmp_path / 'slash.jsonl'}{ENTER}")
    terminal.wait_for("1 turn in")
    before = read(tmp_path / "slash.jsonl")
    assert before[1]["content"] == "/hi"
    terminal.send("/regenerate" + ENTER)
    terminal.wait_for("at temperature 0 the answer stays the same")
    terminal.wait_for(lambda text: "3 tokens," in text.rpartition("stays the same")[2])
    terminal.send(f"/save {tmp_path / 'again.jsonl'}{ENTER}")
    terminal.wait_for(lambda text: text.count("1 turn in") == 2)
    assert read(tmp_path / "again.jsonl")[1:] == before[1:]
    terminal.send("/bye" + ENTER)
    assert terminal.wait_end() == 0


def test_a_message_that_is_too_long_leaves_the_conversation_as_it_was(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "kept.jsonl"
    terminal = start()
    terminal.send("hi" + ENTER)
    terminal.wait_for(": 3 tokens,")
    terminal.send("b " * 100 + ENTER)
    terminal.wait_for("message has 199 tokens, but must have fewer than 128 tokens")
    terminal.send("b " * 50 + ENTER)
    terminal.wait_for("tokens with all that was said before, but must have fewer than 128")
    terminal.send("hello" + ENTER)
    terminal.wait_for(lambda text: text.count(": 3 tokens,") == 1 and "> hello" in text)
    terminal.send(f"/save {file}{ENTER}")
    terminal.wait_for("2 turns in")
    assert [m["content"] for m in read(file)[1:] if m["role"] == "user"] == ["hi", "hello"]


def test_an_interrupt_stops_the_answer_and_not_the_session(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "stopped.jsonl"
    terminal = start("--backend", "reference", num_tokens=110)
    terminal.send("hi" + ENTER)
    terminal.wait_for("tokens/s, context")  # under way
    terminal.send(CTRL_C)
    terminal.wait_for(", stopped")
    terminal.send("half a line" + CTRL_C)
    terminal.wait_for("Ctrl-D or /quit ends the conversation")
    terminal.send(f"/save {file}{ENTER}")
    terminal.wait_for("1 turn in")
    terminal.send(CTRL_D)
    assert terminal.wait_end() == 0
    assert [m["role"] for m in read(file)[1:]] == ["user", "assistant"]
