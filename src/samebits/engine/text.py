"""From tokens to text that may be shown: whole characters, nothing that may still become a stop string."""

from __future__ import annotations

from samebits.loaders import Tokenizer


class StopText:
    """Cuts text at the first stop string, also across tokens, holding back what may become one."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops, self._held = stops, ""

    def push(self, text: str) -> tuple[str, bool]:
        """(text that is safe to show, whether a stop string was met)."""
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            shown, self._held = self._held[: min(found)], ""
            return shown, True
        keep = max((n for s in self._stops for n in range(1, len(s)) if self._held.endswith(s[:n])), default=0)
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown, False

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held


class AnswerText:
    """The text of one answer as its tokens come."""

    def __init__(self, tokenizer: Tokenizer, stops: tuple[str, ...]) -> None:
        self._stream, self._stops = tokenizer.stream(skip_special=True), StopText(stops)

    def push(self, token: int) -> tuple[str, bool]:
        """(text that became safe to show, whether a stop string was met)."""
        return self._stops.push(self._stream.push(token))

    def finish(self) -> str:
        """What was held back."""
        return self._stops.push(self._stream.finish())[0] + self._stops.finish()
