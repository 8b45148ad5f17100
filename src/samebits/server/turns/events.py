"""What happens in an answer, in no protocol's words: text, reasoning and calls as they come, and the end.

The events of a choice stand in this order: any of `TextDelta`, `ReasoningDelta` and calls, each call a `CallStarted`
followed by its `CallArguments`, which joined are a JSON object; last one `Finished`. No delta is empty. Where an answer
is cut, "length", its last call may be as far as it had come.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from samebits.engine.answer import Completion, Piece


@dataclass(frozen=True)
class TextDelta:
    text: str


@dataclass(frozen=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True)
class CallStarted:
    """`index` counts the calls of a choice from 0; `id` is what a tool message answers to."""

    index: int
    id: str
    name: str


@dataclass(frozen=True)
class CallArguments:
    index: int
    text: str


@dataclass(frozen=True)
class Finished:
    """`reason` is "stop", "length" or "tool_calls"."""

    reason: str


Event = TextDelta | ReasoningDelta | CallStarted | CallArguments | Finished


@dataclass(frozen=True)
class Step:
    """What one piece of the engine's brought to a choice; the piece has the token and its log-probabilities.

    is_answer   whether the token can be a part of the answer's text: it stands outside of reasoning and its marks
    """

    choice: int
    events: tuple[Event, ...]
    piece: Piece
    is_answer: bool = True


@dataclass(frozen=True)
class Call:
    """A call; `arguments` is the text of a JSON object if the call is whole."""

    id: str
    name: str
    arguments: str = ""


@dataclass
class ChoiceAnswer:
    """A choice as its events leave it. `completion` is the engine's side: token ids, pieces, seed, hash of logits."""

    steps: list[Step] = field(default_factory=list)
    finish_reason: str = "length"
    completion: Completion | None = None
    _texts: list[str] = field(default_factory=list)
    _thoughts: list[str] = field(default_factory=list)
    _calls: list[tuple[CallStarted, list[str]]] = field(default_factory=list)  # each with its arguments in parts

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def reasoning(self) -> str:
        return "".join(self._thoughts)

    @property
    def calls(self) -> list[Call]:
        return [Call(started.id, started.name, "".join(parts)) for started, parts in self._calls]

    @property
    def last_call(self) -> Call | None:
        """The last of `calls`, without making the others."""
        if not self._calls:
            return None
        started, parts = self._calls[-1]
        return Call(started.id, started.name, "".join(parts))

    def take(self, step: Step) -> None:
        """Add the choice's next step with its events."""
        self.steps.append(step)
        for event in step.events:
            self.add(event)

    def add(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._texts.append(event.text)
        elif isinstance(event, ReasoningDelta):
            self._thoughts.append(event.text)
        elif isinstance(event, CallStarted):
            self._calls.append((event, []))
        elif isinstance(event, CallArguments):
            self._calls[event.index][1].append(event.text)
        else:
            self.finish_reason = event.reason
