"""An answer at a terminal: markdown as such while it comes, reasoning dimmed, a status line below.

A block of markdown, such as a paragraph or a list, is printed for good when the next one begins. Only the block under
way is drawn again, in place, so nothing that was printed ever moves, however long the answer is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from rich.console import Console, ConsoleOptions, ConsoleRenderable, Group, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from samebits.cli.chat.markdown_blocks import MarkdownBlocks
from samebits.cli.chat.thinking import Part

SECONDS_PER_FRAME = 0.08
LINES_AROUND = 3  # that the block under way leaves free: the status line, and room for the cursor
DRAWN_SCREENS = 4  # of characters of the block under way: more would not be seen
CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def clean(text: str) -> str:
    """A model's text for a terminal: no control characters, which could do anything there."""
    return text.translate(CONTROLS)


class _Tail:
    """The last lines of something, as many as there is room for."""

    def __init__(self, shown: ConsoleRenderable) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._shown, options, pad=False)
        for line in lines[-max(1, console.height - LINES_AROUND) :]:
            yield from line
            yield Segment.line()


def _noting(parts: Iterable[Part], answer: list[str]) -> Iterator[Part]:
    """The parts, while the texts that are no reasoning gather in `answer`."""
    for part in parts:
        if not part.is_reasoning:
            answer.append(part.text)
        yield part


class Screen:
    """Shows one answer after another on a console."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def show(self, parts: Iterable[Part], status: Callable[[], str]) -> str:
        """Shows an answer as it comes, with a line of `status()` below; the answer's text, reasoning left out."""
        answer: list[str] = []
        with Live(console=self.console, auto_refresh=False, transient=True) as live:
            for text, is_reasoning, is_finished in self._blocks(_noting(parts, answer)):
                drawn = self._drawn(text, is_reasoning)
                if is_finished:
                    self.console.print(drawn)
                    self.console.print()
                    live.update(Text(status(), style="dim"))
                else:
                    live.update(Group(_Tail(drawn), Text(status(), style="dim")), refresh=True)
        return "".join(answer)

    def _blocks(self, parts: Iterable[Part]) -> Iterator[tuple[str, bool, bool]]:
        """(a block, whether it is reasoning, whether it is finished); of the one under way the end, once per frame."""
        blocks, was_reasoning, drawn_at = MarkdownBlocks(), False, 0.0
        for part in parts:
            if part.text and part.is_reasoning != was_reasoning:
                if (rest := blocks.rest()).strip():
                    yield rest, was_reasoning, True
                was_reasoning = part.is_reasoning
            for block in blocks.push(clean(part.text)):
                yield block, was_reasoning, True
            if time.monotonic() - drawn_at >= SECONDS_PER_FRAME:
                yield blocks.tail(DRAWN_SCREENS * self.console.width * self.console.height), was_reasoning, False
                drawn_at = time.monotonic()
        if (rest := blocks.rest()).strip():
            yield rest, was_reasoning, True

    @staticmethod
    def _drawn(text: str, is_reasoning: bool) -> ConsoleRenderable:
        if is_reasoning:
            return Text(text.strip("\n"), style="dim italic")
        return Markdown(text, code_theme="ansi_dark", hyperlinks=False)
