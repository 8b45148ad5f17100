"""What a model's text may cost the page: work that is linear in its length, done in short slices."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from browsers import real_browser
from live_server import Running

import samebits.server

PAGE = Path(samebits.server.__file__).parent / "page"
RENDERERS = ("markdown.js", "inline.js", "lines.js")
NODE = shutil.which("node")
SMALL, LARGE = 6_000, 24_000  # characters
PIECES = [
    "*",
    "**",
    "_",
    "`",
    "```",
    "\n",
    "\n\n",
    "- ",
    "1. ",
    "> ",
    "# ",
    "|",
    "|---|",
    "[",
    "](",
    ")",
    "](x:)",
    "\\",
]
PIECES += ["https://a.example", "http://[", " ", "    ", "word", "😀", "~~", "---", "-"]


def repeated(piece: str, end: str = "", start: str = "") -> Any:
    return lambda size: start + piece * (size // len(piece)) + end


def runs(char: str) -> Any:
    """Return a maker of texts in which each run of a character is longer than the one before."""

    def make(size: int) -> str:
        text, width = "", 1
        while len(text) < size:
            text, width = f"{text}{char * width} x", width + 1
        return text

    return make


KINDS: dict[str, Any] = {
    "dashes below a bar": repeated("-", "x|", "|\n"),
    "blanks below a bar": repeated(" |-", "x", "|\n"),
    "rule": repeated("- ", "x"),
    "stars": repeated("*a "),
    "blank stars": repeated("a *", "a*"),
    "ticks": runs("`"),
    "a run of ticks": repeated("`"),
    "a run of stars": repeated("*", "a"),
    "underscores": repeated("_a"),
    "brackets": repeated("["),
    "labels that lead nowhere": repeated("[" * 400 + "](x:)"),
    "targets": repeated("[]("),
    "targets in targets": repeated("](http://", ")"),
    "quotes": repeated(">", " x"),
    "lists": lambda size: "\n".join(" " * (i % 60) + "- x" for i in range(size // 33)),
    "deep lists": lambda size: "\n".join(" " * (2 * i % 90) + "- x" for i in range(size // 48)),
    "items": repeated("1. x\n"),
    "pipes": lambda size: "|" * (size // 2) + "\n" + "|-" * (size // 4),
    "rows": repeated("| a | b |\n", "", "| a | b |\n|---|---|\n"),
    "bars": repeated("|\n|-\n"),
    "emphasis": repeated("**a"),
    "nested emphasis": repeated("*a **b _c "),
    "addresses": repeated("https://"),
    "addresses that lead nowhere": repeated("http://["),
    "marks behind an address": repeated("http://a" + ")" * 300),
    "headings": repeated("# a\n"),
    "hashes": repeated("#"),
    "fences": repeated("```\n"),
    "a fence of ticks": repeated("`", "\nx", ""),
    "escapes": repeated("\\*"),
    "blanks": repeated(" ", "x"),
    "lines": repeated("x\n"),
}


def work_of(texts: list[str], tmp_path: Path) -> list[int]:
    """Return what each text takes, as page_work.mjs counts it."""
    if NODE is None:
        pytest.skip("no node here; Debian's package is enough")
    for file in PAGE.glob("*.js"):
        shutil.copy(file, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    call = [NODE, str(Path(__file__).with_name("page_work.mjs")), str(tmp_path)]
    done = subprocess.run(call, input=json.dumps(texts), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def test_work_is_linear_in_the_length(tmp_path: Path) -> None:
    draw = random.Random(5)
    units = ["".join(draw.choices(PIECES, k=draw.randint(1, 6))) for _ in range(60)]
    makers = {**KINDS, **{repr(unit): repeated(unit) for unit in units}}
    texts = [make(size) for make in makers.values() for size in (SMALL, LARGE)]
    counts = work_of(texts, tmp_path)
    for i, name in enumerate(makers):
        small, large = counts[2 * i : 2 * i + 2]
        longer = len(texts[2 * i + 1]) / len(texts[2 * i])
        assert large < 1.6 * longer * small + 1000, (name, small, large)


def test_no_rule_is_a_regular_expression_with_a_repeat() -> None:
    """The engine of a browser goes back over what a repeat has read, which no count shows."""
    expressions = list[str]()
    for name in RENDERERS:
        source = re.sub(r"/\*.*?\*/|// .*", "", (PAGE / name).read_text())
        expressions += re.findall(r"[(=,:?!&|>]\s*/((?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)/[a-z]*", source)
    for expression in expressions:
        outside = re.sub(r"\\.|\[(?:[^\]\\]|\\.)*\]", "", expression)
        assert not re.search(r"[*+?]|\{\d", outside), expression
    assert len(expressions) == 2  # words and punctuation; a third one is to be found by this test


@pytest.mark.parametrize("kind", ["one paragraph", "many turns"])
def test_a_stored_conversation_is_drawn_in_slices(server: Running, kind: str) -> None:
    """The clock of the page is the test's: each look at it is 5 ms later, so a slice has few steps."""
    answer = {"one paragraph": "*a b* `c`\n" * 400, "many turns": "*a*"}[kind]
    turn = {"user": "hi", "answer": answer, "reasoning": "", "note": "", "problem": None, "tooLong": None}
    turns = [{**turn, "isLeftOut": False}] * (80 if kind == "many turns" else 1)
    settings = {"system": "", "temperature": 0.7, "seed": 1, "maxTokens": None}
    stored = {"id": "1-2", "title": "", "updated": 1, "settings": settings, "turns": turns}
    script = f"localStorage.setItem('samebits.conversation.1-2', {json.dumps(json.dumps(stored))});"
    clock = """
        let now = 0, numLooks = 0, most = 0;
        performance.now = () => { numLooks += 1; most = Math.max(most, numLooks); return now += 5; };
        const wait = setTimeout;
        window.setTimeout = (call, ...rest) => wait(() => { numLooks = 0; call(); }, ...rest);
        window.mostLooks = () => most;
    """
    with real_browser() as browser, browser.new_context() as context:
        context.add_init_script(script + clock)
        page = context.new_page()
        page.goto(server.url)
        page.wait_for_function("n => document.querySelectorAll('.assistant').length === n", arg=len(turns))
        assert page.evaluate("mostLooks()") < 30
