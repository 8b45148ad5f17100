"""Blocks of markdown, such as paragraphs and lists, found in a text as it comes."""

from __future__ import annotations

FENCES = ("```", "~~~")


class MarkdownBlocks:
    """Takes a text in any cut and gives each block once it is complete. Every character is looked at once.

    A block begins after an empty line, outside code, with a line that is not indented: those belong to a list's item.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._lines: list[str] = []  # of the block under way, each with its line break
        self._line: list[str] = []  # what has come of the line after them
        self._fence, self._fence_at = "", 0  # of open code, and which line opened it
        self._is_after_empty = False

    def push(self, text: str) -> list[str]:
        """Return the blocks that this text completes."""
        finished: list[str] = []
        for line in text.splitlines(keepends=True):
            begins = self._is_after_empty and not self._line and not self._fence and not line[0].isspace()
            if begins:
                finished.append(self.rest())
            self._line.append(line)
            if line.splitlines()[0] != line:
                self._end_line()
        return finished

    def _end_line(self) -> None:
        line, self._line = "".join(self._line), []
        self._is_after_empty = not line.strip()
        mark = line.lstrip()[:3]
        if mark in FENCES and self._fence in ("", mark):
            self._fence, self._fence_at = "" if self._fence else mark, len(self._lines)
        self._lines.append(line)

    def tail(self, max_chars: int) -> str:
        """Return the last lines of the block under way, as many as have `max_chars` characters together.

        A longer line is cut at its start. Code whose beginning is left out is opened again.
        """
        parts, num_chars, at = list[str](), 0, len(self._line)
        while at and num_chars < max_chars:
            at -= 1
            parts.append(self._line[at])
            num_chars += len(parts[-1])
        start = len(self._lines)
        while start and not at and num_chars < max_chars:
            start -= 1
            parts.append(self._lines[start])
            num_chars += len(parts[-1])
        is_cut_code = self._fence and self._fence_at < start
        if is_cut_code:
            parts.append(self._lines[self._fence_at])
        return "".join(reversed(parts))

    def rest(self) -> str:
        """Take back the block under way; another one begins."""
        block = "".join((*self._lines, *self._line))
        self._begin()
        return block
