"""An answer's text is read in time that grows with its length: no reader goes over what it has read before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from counted_text import Counter, check_linear

from samebits.engine.answer import Piece
from samebits.engine.reasoning import THINK_MARKS, ReasoningSplitter
from samebits.server.protocols.blocks import BlockWriter
from samebits.server.tools.forms import FORMS
from samebits.server.tools.scanner import CallScanner
from samebits.server.tools.written import WrittenCalls
from samebits.server.turns.events import CallArguments, CallStarted, ChoiceAnswer, ReasoningDelta, Step, TextDelta
from samebits.server.turns.reader import TurnReader

NAMES = frozenset(("f",))
ENDED = Piece(1, "", finish_reason="stop")
ARGUMENTS = '{"a": "'


def read(reader: TurnReader, chunks: Iterable[str], recipient: str | None = None) -> ChoiceAnswer:
    told = ChoiceAnswer()
    for chunk in chunks:
        for event in reader.push(Piece(5, chunk, recipient=recipient)):
            told.add(event)
    for event in reader.push(ENDED):
        told.add(event)
    return told


@pytest.mark.parametrize("chunk", ["word ", "   ", "<", "<tool_", '{"a"', "```", "]["])
@pytest.mark.parametrize(
    ("form", "start"), [(name, start) for name, form in sorted(FORMS.items()) for start in ("", *form.openers)]
)
def test_text_with_calls(form: str, start: str, chunk: str) -> None:
    def work(chunks: Iterable[str], counter: Counter) -> None:
        scanner = CallScanner(FORMS[form], NAMES)
        texts = "".join(str(one) for text in (counter.text(start), *chunks) for one in scanner.push(text))
        counter.num_chars += len(texts) + len("".join(map(str, scanner.finish())))

    check_linear(work, chunk, 300)  # more than the longest name that a form reads


def test_a_long_piece_with_text_alone() -> None:
    def work(chunks: Iterable[str], counter: Counter) -> None:
        (told,) = CallScanner(FORMS["hermes"], NAMES).push(counter.text("".join(chunks)))
        counter.num_chars += len(str(told))

    check_linear(work, "word < ")


@pytest.mark.parametrize("form", sorted(FORMS))
def test_calls_that_a_grammar_writes(form: str) -> None:
    """In one long piece too, whose parts are joined."""
    opening = "".join(FORMS[form].written("f")[0]) + ARGUMENTS

    def work(chunks: Iterable[str], counter: Counter) -> None:
        calls = WrittenCalls(FORMS[form], NAMES)
        calls.push(opening)
        calls.push(counter.text("".join(chunks)))

    check_linear(work, "some text ")


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("chunk", ["thought ", "  ", "\n\n", "<", "</thin", "</think", " </think"])
@pytest.mark.parametrize("start", ["", "<think>x"])
def test_reasoning(chunk: str, is_open: bool, start: str) -> None:
    def work(chunks: Iterable[str], counter: Counter) -> None:
        splitter = ReasoningSplitter(THINK_MARKS["think"], is_open)
        begun = [counter.text(start)] if start else []
        spans = [span for text in (*begun, *chunks) for span in splitter.push(text)] + splitter.finish()
        counter.num_chars += sum(len(span.text) for span in spans)

    check_linear(work, chunk)


def test_a_message_to_a_function() -> None:
    def work(chunks: Iterable[str], counter: Counter) -> None:
        reader = TurnReader(str, None, CallScanner(FORMS["gpt_oss"], NAMES))
        told = read(reader, (counter.text(ARGUMENTS), *chunks, counter.text('"}')), "functions.f")
        assert [call.name for call in told.calls] == ["f"]
        counter.num_chars += len(told.calls[0].arguments)

    check_linear(work, "more ")


EVENTS: dict[str, Callable[[str], TextDelta | ReasoningDelta | CallArguments]] = {
    "text": TextDelta,
    "reasoning": ReasoningDelta,
    "arguments": lambda text: CallArguments(0, text),
}


@pytest.mark.parametrize("kind", EVENTS)
def test_answers_and_their_blocks(kind: str) -> None:
    def work(chunks: Iterable[str], counter: Counter) -> None:
        answer, writer = ChoiceAnswer(), BlockWriter()
        first = [CallStarted(0, "id", "f")] if kind == "arguments" else []
        for event in (*first, *map(EVENTS[kind], chunks)):
            step = Step(0, (event,), Piece(5, ""))
            answer.take(step)
            list(writer.push(step))
        list(writer.push(Step(0, tuple(TurnReader().push(ENDED)), ENDED)))
        told = answer.text + answer.reasoning + "".join(call.arguments for call in answer.calls)
        assert told == writer.blocks[0].text
        counter.num_chars += len(told)

    check_linear(work, "some text ")
