"""The forms in which models call tools: what is a call, what stays text, and that no cut of a text matters."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.engine.answer import Piece
from samebits.engine.reasoning import THINK_MARKS, ReasoningSplitter
from samebits.server.tools.forms import FORMS
from samebits.server.tools.reading import ArgumentsPart, CallOpened, Found, ParsedCall
from samebits.server.tools.scanner import CallScanner
from samebits.server.tools.written import WrittenCalls
from samebits.server.turns.events import ChoiceAnswer
from samebits.server.turns.reader import TurnReader

NAMES = frozenset(("f", "get_weather", "ns.g"))
PARIS = {"city": "Paris"}
OBJECT = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
LLAMA = '{"name": "get_weather", "parameters": {"city": "Paris"}}'
WEATHER = ParsedCall("get_weather", PARIS)
HERMES = f"<tool_call>\n{OBJECT}\n</tool_call>"

READ: list[tuple[str, str, list[Found]]] = [
    ("hermes", HERMES, [WEATHER]),
    ("hermes", f"Let me see.\n\n{HERMES}\n{HERMES}\n", ["Let me see.", WEATHER, WEATHER]),
    ("hermes", f"{HERMES}\nThere.", [WEATHER, "There."]),
    ("hermes", HERMES.replace('"Paris"', '"</tool_call>}{\\"\n"'), [
        ParsedCall("get_weather", {"city": '</tool_call>}{"\n'})
    ]),
    ("hermes", HERMES.replace('{"city": "Paris"}', '"{\\"city\\": \\"Paris\\"}"'), [WEATHER]),  # arguments as text
    ("hermes", f"<tool_call>{HERMES}", ["<tool_call>", WEATHER]),
    ("hermes", "  plain <b>text</b> ", ["  plain <b>text</b> "]),
    ("llama3", LLAMA, [WEATHER]),
    ("llama3", f" {LLAMA}; {LLAMA}", [WEATHER, WEATHER]),
    ("llama3", f"<|python_tag|>{LLAMA}", [WEATHER]),
    ("llama3", '<|python_tag|>get_weather.call(city="Paris")', [WEATHER]),
    ("llama3", f"As JSON: {LLAMA}", [f"As JSON: {LLAMA}"]),
    ("mistral", f"[TOOL_CALLS] [{OBJECT}, {OBJECT}]", [WEATHER, WEATHER]),
    ("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]f{}', [WEATHER, ParsedCall("f", {})]),
    ("mistral-args", 'Hm. [TOOL_CALLS]f[CALL_ID]a1b2c3d4e[ARGS]{"x": [1]}', ["Hm.", ParsedCall("f", {"x": [1]})]),
    ("gemma", '```tool_code\nget_weather(city="Paris")\n```', [WEATHER]),
    ("gemma", "```tool_code\nns.g(a=1, b=[True, None], c={'d': 'e'})\n```", [
        ParsedCall("ns.g", {"a": 1, "b": [True, None], "c": {"d": "e"}})
    ]),
    ("gemma", f"Well:\n```tool_code\n{LLAMA}\n```", ["Well:", WEATHER]),
    ("gemma", "<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>", [WEATHER]),
    ("gemma", "<start_function_call>call:f{a:{b:[1,true,<escape>,}<escape>]},c:-2.5}<end_function_call>", [
        ParsedCall("f", {"a": {"b": [1, True, ",}"]}, "c": -2.5})
    ]),
    ("gpt_oss", HERMES, [HERMES]),
]  # fmt: skip
BROKEN = [
    ("hermes", "<tool_call>\n{not json}\n</tool_call>"),
    ("hermes", HERMES.replace("get_weather", "unknown")),
    ("hermes", HERMES.replace('{"city": "Paris"}', "[1]")),
    ("hermes", HERMES.replace('"Paris"', "NaN")),
    ("hermes", HERMES.replace('"Paris"', "1e999")),
    ("hermes", HERMES.replace('"Paris"', '"\\ud800"')),
    ("hermes", HERMES[:-1]),
    ("hermes", "<tool_call>" + "[" * 100_000),
    ("hermes", "<tool_call>" + "[" * 100_000 + "]" * 100_000 + "</tool_call>"),
    ("hermes", '<tool_call>{"x": "' + '<tool_call>{"x": "' * 20_000),
    ("llama3", '{"name": "get_weather"}'),
    ("llama3", "<|python_tag|>import os; os.remove('x')"),
    ("llama3", "<|python_tag|>get_weather.call('Paris')"),
    ("llama3", "<|python_tag|>get_weather.call(city={1, 2})"),
    ("llama3", "<|python_tag|>" + "(" * 60_000),
    ("llama3", "<|python_tag|>" + "-" * 60_000 + "1"),
    ("mistral", "[TOOL_CALLS] [1, 2]"),
    ("mistral", "[TOOL_CALLS]" + "x" * 1000 + "{}"),
    ("gemma", "```tool_code\nprint(get_weather)\n```"),
    ("gemma", "<start_function_call>call:f{a:" + "[" * 500 + "<end_function_call>"),
    ("gemma", "<start_function_call>call:f{a b}<end_function_call>"),
]


def scanned(form: str, pieces: list[str]) -> list[Found]:
    """What a scanner finds, texts next to each other joined."""
    scanner, found = CallScanner(FORMS[form], NAMES), []
    for one in [x for piece in pieces for x in scanner.push(piece)] + scanner.finish():
        if isinstance(one, str) and found and isinstance(found[-1], str):
            found[-1] += one
        else:
            found.append(one)
    return found


@pytest.mark.parametrize(("form", "text", "wanted"), READ)
def test_calls_are_read(form: str, text: str, wanted: list[Found]) -> None:
    assert scanned(form, [text]) == wanted


@pytest.mark.parametrize(("form", "text"), BROKEN)
def test_what_is_no_call_is_text_to_the_last_character(form: str, text: str) -> None:
    assert scanned(form, [text]) == [text]
    assert scanned(form, ["Hm. ", text, " So."]) == [f"Hm. {text} So."]


PARTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "<tool", OBJECT, LLAMA, HERMES, "{", "}", '"', "\\", ";", "\n", " ", "é"),
        *("[TOOL_CALLS]", "[ARGS]", "f", "[", "]", "{}", "<|python_tag|>", 'f.call(a="b")', "```tool_code\n", "```"),
        *("<start_function_call>", "call:f{a:<escape>b<escape>}", "<end_function_call>", "<think>", "</think>"),
        *("[THINK]", "[/THINK]", "<", "</", "thi"),
    ]
)
TEXTS = st.lists(PARTS | st.text(max_size=3), max_size=12).map("".join)


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A text, and pieces that it falls into."""
    text = draw(TEXTS)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    ends = [0, *cuts, len(text)]
    return text, [text[a:b] for a, b in pairwise(ends)]


@settings(max_examples=120, deadline=None)
@given(cut=cut_texts(), form=st.sampled_from(sorted(FORMS)))
def test_no_cut_of_a_text_changes_its_calls(cut: tuple[str, list[str]], form: str) -> None:
    text, pieces = cut
    found = scanned(form, [text])
    assert scanned(form, pieces) == found == scanned(form, list(text))
    calls = [one for one in found if not isinstance(one, str)]
    assert all(call.name in NAMES and json.loads(json.dumps(call.arguments)) == call.arguments for call in calls)
    if not calls:
        assert "".join(map(str, found)) == text


def joined(found: list[Found]) -> list[Any]:
    """Calls as [name, arguments], and texts."""
    told: list[Any] = []
    for one in found:
        if isinstance(one, CallOpened):
            told.append([one.name, ""])
        elif isinstance(one, ArgumentsPart):
            told[-1][1] += one.text
        elif told and isinstance(told[-1], str):
            told[-1] += one
        else:
            told.append(one)
    return told


@st.composite
def written(draw: st.DrawFn) -> tuple[str, str, list[str], list[Any]]:
    """A form, calls as a grammar writes them, pieces that they fall into, perhaps cut at the end, and those calls."""
    form = draw(st.sampled_from(sorted(set(FORMS) - {"gpt_oss"})))
    values = st.recursive(st.integers() | st.text(max_size=4) | st.booleans(), st.lists, max_leaves=4)
    calls = draw(
        st.lists(st.tuples(st.sampled_from(sorted(NAMES)), st.dictionaries(st.text(max_size=3), values)), max_size=3)
    )
    texts = [(name, json.dumps(arguments, ensure_ascii=draw(st.booleans()))) for name, arguments in calls]
    parts = [[*FORMS[form].written(name)[0], text, *FORMS[form].written(name)[1]] for name, text in texts]
    text = "".join(FORMS[form].between).join("".join(part) for part in parts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return form, text, [text[a:b] for a, b in pairwise([0, *cuts, len(text)])], [list(call) for call in texts]


@settings(max_examples=80, deadline=None)
@given(case=written())
def test_calls_that_a_grammar_wrote_are_given_in_parts(case: tuple[str, str, list[str], list[Any]]) -> None:
    form, text, pieces, calls = case
    for cut in ([text], pieces, list(text)):
        reader = WrittenCalls(FORMS[form], NAMES)
        assert joined([one for piece in cut for one in reader.push(piece)] + reader.finish()) == calls


@settings(max_examples=80, deadline=None)
@given(cut=cut_texts(), form=st.sampled_from(sorted(FORMS)))
def test_no_cut_changes_what_is_read_of_any_text(cut: tuple[str, list[str]], form: str) -> None:
    text, pieces = cut
    told = []
    for part in ([text], pieces, list(text)):
        reader = WrittenCalls(FORMS[form], NAMES)
        told.append(joined([one for piece in part for one in reader.push(piece)] + reader.finish()))
    assert told[0] == told[1] == told[2]


def split(marks: str, is_open: bool, pieces: list[str]) -> tuple[str, str]:
    """Reasoning and answer."""
    splitter, told = ReasoningSplitter(THINK_MARKS[marks], is_open), {True: "", False: ""}
    for span in [s for piece in pieces for s in splitter.push(piece)] + splitter.finish():
        assert span.text
        told[span.is_reasoning] += span.text
    return told[True], told[False]


@settings(max_examples=120, deadline=None)
@given(cut=cut_texts(), marks=st.sampled_from(sorted(THINK_MARKS)), is_open=st.booleans())
def test_no_cut_of_a_text_changes_its_reasoning(cut: tuple[str, list[str]], marks: str, is_open: bool) -> None:
    text, pieces = cut
    assert split(marks, is_open, pieces) == split(marks, is_open, [text]) == split(marks, is_open, list(text))


@pytest.mark.parametrize(
    ("marks", "is_open", "text", "wanted"),
    [
        ("think", False, "<think>\nTwo and two.\n</think>\n\nFour.", ("Two and two.", "Four.")),
        ("think", True, "Two and two.</think>Four.", ("Two and two.", "Four.")),
        ("think", False, " Four.", ("", " Four.")),
        ("think", False, "Write <think> and </think>.", ("", "Write <think> and </think>.")),
        ("think", False, "<think>\n\n</think>\n\nFour. ", ("", "Four. ")),
        ("think", True, "cut in </thi", ("cut in </thi", "")),
        ("think", False, "<think", ("", "<think")),
        ("think", True, "a </think> b </think>", ("a", "b </think>")),
        ("mistral", False, "[THINK]Hm.[/THINK]Four.", ("Hm.", "Four.")),
        ("mistral", False, "<think>Hm.</think>", ("", "<think>Hm.</think>")),
    ],
)
def test_reasoning_is_what_stands_between_marks_at_the_beginning(
    marks: str, is_open: bool, text: str, wanted: tuple[str, str]
) -> None:
    assert split(marks, is_open, [text]) == wanted


def answered(form: str, is_open: bool, pieces: list[str]) -> ChoiceAnswer:
    """What a choice comes to whose pieces have these texts."""
    scanner, splitter = CallScanner(FORMS[form], NAMES), ReasoningSplitter(THINK_MARKS["think"], is_open)
    reader, told = TurnReader(str, splitter, scanner), ChoiceAnswer()
    for piece in [*(Piece(1, text) for text in pieces), Piece(2, "", finish_reason="stop")]:
        for event in reader.push(piece):
            told.add(event)
    return told


@settings(max_examples=80, deadline=None)
@given(cut=cut_texts(), form=st.sampled_from(sorted(FORMS)), is_open=st.booleans())
def test_no_cut_of_a_text_changes_an_answer(cut: tuple[str, list[str]], form: str, is_open: bool) -> None:
    text, pieces = cut
    whole, parts, letters = (answered(form, is_open, part) for part in ([text], pieces, list(text)))
    for told in (parts, letters):
        assert (told.text, told.reasoning, told.calls) == (whole.text, whole.reasoning, whole.calls)
    assert whole.finish_reason == ("tool_calls" if whole.calls else "stop")
