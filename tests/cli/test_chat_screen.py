"""How an answer is drawn: markdown as such, in place, each line once and for all; reasoning dimmed; nothing obeyed."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from pathlib import Path

import pyte
import pytest
from rich.console import Console

from samebits.cli.chat import screen as screens
from samebits.cli.chat.markdown_blocks import MarkdownBlocks
from samebits.cli.chat.screen import Screen, clean
from samebits.cli.chat.thinking import Part, parts
from samebits.engine.answer import Piece
from samebits.engine.reasoning import THINK_MARKS, ReasoningSplitter

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from counted_text import Counter, check_linear

ANSWER = """Three **fruits**, with `code`:

- apples
- pears

1. first

2. second

   more of the second

```python
def f():

    return 1
```

| a | b |
|---|---|
| 1 | 2 |

The end.
"""


def pieces(*texts: str) -> list[Piece]:
    last = len(texts) - 1
    return [Piece(i, text, finish_reason="stop" if i == last else None) for i, text in enumerate(texts)]


def drawn(found: list[Part], height: int = 12) -> tuple[str, list[str]]:
    """(bytes that went to the terminal, its lines in the end, with those that scrolled off)."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=60, height=height, color_system="truecolor", _environ={})
    Screen(console).show(found, lambda: "STATUS")
    terminal = pyte.HistoryScreen(60, height, history=1000)
    pyte.Stream(terminal).feed(file.getvalue().replace("\n", "\r\n"))
    above = ["".join(line[x].data for x in range(60)) for line in terminal.history.top]
    return file.getvalue(), [line.rstrip() for line in (*above, *terminal.display)]


def whole(text: str) -> list[str]:
    """What markdown looks like that is drawn block by block, each by itself."""
    lines = []
    blocks = MarkdownBlocks()
    for block in (*blocks.push(text), blocks.rest()):
        file = io.StringIO()
        console = Console(file=file, width=60, _environ={})
        console.print(Screen._drawn(block, False))
        lines += [*(line.rstrip() for line in file.getvalue().rstrip("\n").split("\n")), ""]
    return lines


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_answer_in_pieces_ends_up_as_the_whole_one(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(screens, "SECONDS_PER_FRAME", 0.0)
    cut = [ANSWER[i : i + size] for i in range(0, len(ANSWER), size)]
    sent, lines = drawn(list(parts(pieces(*cut), None)))
    text = "\n".join(lines).rstrip()
    assert text == "\n".join(whole(ANSWER)).rstrip()
    assert "**" not in text
    assert "STATUS" not in text  # it goes when the answer has come
    assert "\x1b[2J" not in sent


def test_what_is_printed_is_never_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame goes up over the block under way and its status line, and no further."""
    monkeypatch.setattr(screens, "SECONDS_PER_FRAME", 0.0)
    words = [f"w{i} " for i in range(8)]
    text = "".join("\n\n" + word * 3 for word in words).lstrip()
    sent, _ = drawn(list(parts(pieces(*text), None)))
    ups = [part.count("\x1b[1A") for part in sent.split("STATUS")]
    assert max(ups) <= 3
    for word in words:
        in_full = word.strip() + " " + word.strip() + " " + word.strip()
        assert sent.rindex(in_full) < sent.index(words[words.index(word) + 1]) if word != words[-1] else True


def test_a_block_higher_than_the_terminal_is_whole_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screens, "SECONDS_PER_FRAME", 0.0)
    lines = [f"line {i}" for i in range(40)]
    text = "```\n" + "\n".join(lines) + "\n```\n"
    _, found = drawn(list(parts(pieces(*text.splitlines(keepends=True)), None)))
    assert [line.strip() for line in found if line.strip()] == lines


def test_reasoning_is_dim_and_left_out_of_the_answer() -> None:
    found = list(
        parts(pieces("<thi", "nk>so", " so</th", "ink>\n\nyes", " sir"), ReasoningSplitter(THINK_MARKS["think"], False))
    )
    assert [(p.text, p.is_reasoning) for p in found if p.text] == [
        ("so", True),
        (" so", True),
        ("yes", False),
        (" sir", False),
    ]
    sent, lines = drawn(found)
    assert "\x1b[2;3mso so" in sent
    assert [line for line in lines if line] == ["so so", "yes sir"]
    console = Console(file=io.StringIO())
    assert Screen(console).show(found, str) == "yes sir"


@pytest.mark.parametrize(
    ("texts", "has_begun", "expected"),
    [
        (("a <think> b",), False, [("a <think> b", False)]),
        (("so</think>", "yes"), True, [("so", True), ("yes", False)]),
        (("<think>never", " closed </thi"), False, [("never", True), (" closed", True), (" </thi", True)]),
        (("<", "b"), False, [("<b", False)]),
        (("\n<think>", "a</b></think>c"), False, [("a</b>", True), ("c", False)]),
    ],
)
def test_where_reasoning_begins_and_ends(
    texts: tuple[str, ...], has_begun: bool, expected: list[tuple[str, bool]]
) -> None:
    assert [
        (p.text, p.is_reasoning)
        for p in parts(pieces(*texts), ReasoningSplitter(THINK_MARKS["think"], has_begun))
        if p.text
    ] == expected


def test_channels_are_reasoning() -> None:
    thought, said = Piece(1, "hm", channel="analysis"), Piece(2, "yes", channel="final", finish_reason="stop")
    assert [(p.text, p.is_reasoning) for p in parts([thought, said], None)] == [("hm", True), ("yes", False)]


def test_a_model_cannot_command_the_terminal() -> None:
    assert clean("a\x1b]0;title\x07b\x9b2Jc\td\n") == "a]0;titleb2Jc\td\n"
    sent, _ = drawn(list(parts(pieces("x\x1b[2Jy\x1b[31m"), None)))
    assert "\x1b[2J" not in sent
    assert "\x1b[31m" not in sent


def in_blocks(cut: list[str]) -> list[str]:
    blocks = MarkdownBlocks()
    return [*(block for text in cut for block in blocks.push(text)), blocks.rest()]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_no_cut_of_a_text_changes_its_blocks(size: int) -> None:
    whole_text = ANSWER + "\n\n~~~\n```\n\nx\n~~~\n\n  indented\n\nlast\n\n"
    found = in_blocks([whole_text[i : i + size] for i in range(0, len(whole_text), size)])
    assert found == in_blocks([whole_text])
    assert "".join(found) == whole_text
    assert len(found) > 5


@pytest.mark.parametrize("chunk", ["word ", "line\n", "- item\n\n  more\n", "\n", " "])
@pytest.mark.parametrize("start", ["", "```python\n"])
def test_a_long_block_is_read_once_and_drawn_in_part(monkeypatch: pytest.MonkeyPatch, start: str, chunk: str) -> None:
    monkeypatch.setattr(screens, "SECONDS_PER_FRAME", 0.0)

    def work(chunks: Iterable[str], counter: Counter) -> None:
        screen, piece = Screen(Console(width=20, height=3, _environ={})), Piece(5, "")
        shown = [Part(counter.text(start), False, piece)] if start else []
        for text, _, is_finished in screen._blocks((*shown, *(Part(c, False, piece) for c in chunks))):
            counter.num_chars += len(text)
            assert is_finished or len(text) <= screens.DRAWN_SCREENS * 60 + len(chunk) + len(start)
            assert is_finished or text.startswith(start)

    check_linear(work, chunk, 1000)
