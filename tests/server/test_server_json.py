"""JSON from strangers: what is refused, in which words, and that counting before parsing counts right."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_server import Running

from samebits.core.json_scan import PART_BYTES, Scan, scan_part
from samebits.server.http import json_input
from samebits.server.http.errors import ApiError
from samebits.server.http.json_input import CONTAINER_VALUES, ValueBudget, parse_arguments, parse_object
from samebits.server.http.json_output import BATCH, JsonText, json_text, spaced_json_text
from samebits.server.limits import MAX_DEPTH, MAX_VALUES
from samebits.server.tools.offer import NOTHING
from samebits.server.tools.reading import parse_json

REFUSALS = [
    (b'{"prompt": NaN}', "NaN, but must have numbers that JSON knows"),
    (b'{"prompt": -Infinity}', "-Infinity, but must have numbers that JSON knows"),
    (b'{"temperature": 1e999}', "the number 1e999, but must have numbers that a double can hold"),
    (b'{"seed": ' + b"7" * 5000 + b"}", "a number of 5000 characters, but must have numbers of at most 400"),
    (b'{"top_p": 0.' + b"7" * 5000 + b"}", "a number of 5002 characters, but must have numbers of at most 400"),
    (b'{"prompt": "a", "n": 1, "prompt": "b"}', "the name 'prompt' twice in an object, but must have each name once"),
    (b'{"prompt": "\\ud800"}', "a lone surrogate in a text, but must have text that UTF-8 can encode"),
    (b'{"\\udfff": "x"}', "a lone surrogate in a text, but must have text that UTF-8 can encode"),
    (b'{"prompt": "\xed\xa0\x80"}', "a byte that is not UTF-8 at 12, but must be a JSON object"),
    ('{"prompt": "x"}'.encode("utf-16"), "a byte that is not UTF-8 at 0, but must be a JSON object"),
    (b'{"prompt": ' + b"[" * 200 + b"]" * 200 + b"}", "more than 128 levels of nesting, but must have fewer"),
    (b'{"prompt": [' + b"1," * MAX_VALUES + b"1]}", f"more than {MAX_VALUES} values and names, but must have fewer"),
    (b"[]", "JSON that is not an object, but must be a JSON object"),
    (b'{"prompt": }', "invalid JSON (expecting value at 11), but must be a JSON object"),
    (b"", "invalid JSON (expecting value at 0), but must be a JSON object"),
]


@pytest.mark.parametrize(("body", "message"), REFUSALS)
@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
def test_what_is_no_plain_json_is_refused_in_a_line(server: Running, path: str, body: bytes, message: str) -> None:
    with server.client() as client:
        reply = client.post(path, content=body, headers={"content-type": "application/json"})
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == f"body has {message}"
    assert reply.json()["error"]["code"] == "invalid_json"


WRONG = [
    ("/v1/completions", {"prompt": ["a", 1]}, "prompt is a list of 2, but must be a list of texts alone"),
    (
        "/v1/completions",
        {"prompt": [1, "a"]},
        "prompt is a list of 2, but must be a text, token ids, or a list of either",
    ),
    (
        "/v1/completions",
        {"prompt": [True]},
        "prompt is a list of 1, but must be a text, token ids, or a list of either",
    ),
    ("/v1/completions", {"prompt": {}}, "prompt is an object of 0, but must be a text, token ids, or a list of either"),
    ("/v1/completions", {"prompt": [[1], 2]}, "prompt is a list of 2, but must be a list of lists of token ids"),
    ("/detokenize", {"tokens": [1.5]}, "tokens is a list of 1, but must be a list of token ids"),
    ("/detokenize", {"tokens": [1] * 65537}, "tokens has 65537 ids, but must have at most 65536"),
    ("/tokenize", {"text": ["x" * 500]}, "text is a list of 1, but must be a text"),
    ("/tokenize", {"text": "x", "add_special": "y" * 500}, None),
]


@pytest.mark.parametrize(("path", "body", "message"), WRONG)
def test_wrong_values_are_shown_in_few_words(server: Running, path: str, body: Any, message: str | None) -> None:
    with server.client() as client:
        reply = client.post(path, json=body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert message is None or error["message"] == message
    assert len(error["message"]) < 200


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text())
TRICKY = st.text(st.sampled_from('"\\,:[]{} \u00e9\U0001f600\n'), max_size=20)
VALUES = st.recursive(
    st.one_of(LEAVES, TRICKY),
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(TRICKY, inner, max_size=6)),
    max_leaves=40,
)
OBJECTS = st.dictionaries(st.one_of(st.text(), TRICKY), VALUES, max_size=6)


def counted(value: Any) -> tuple[int, int]:
    """Values as the scan counts them, and levels, of something that was parsed."""
    if not isinstance(value, (list, dict)):
        return 0, 0
    inner = [counted(v) for v in (value.values() if isinstance(value, dict) else value)]
    marks = max(0, len(value) - 1) + (len(value) if isinstance(value, dict) else 0)
    return CONTAINER_VALUES + marks + sum(n for n, _ in inner), 1 + max((d for _, d in inner), default=0)


@settings(max_examples=60, deadline=None)
@given(OBJECTS, st.booleans(), st.integers(1, 9))
def test_the_scan_counts_what_the_parser_finds(value: dict[str, Any], is_ascii: bool, part_bytes: int) -> None:
    """Wherever the text is cut into parts: in the midst of strings, escapes and runs of backslashes."""
    data = np.frombuffer(json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass"), np.uint8)
    state, deepest = Scan(), 0
    for start in range(0, len(data), part_bytes):
        deepest = max(deepest, scan_part(data[start : start + part_bytes], state))
    num_values = state.num_marks + CONTAINER_VALUES * state.num_containers
    assert (num_values, deepest) == counted(value)
    assert (state.depth, state.is_inside, state.is_escaped) == (0, False, False)


@settings(max_examples=60, deadline=None)
@given(OBJECTS)
def test_plain_json_comes_through(value: dict[str, Any]) -> None:
    assert parse_object(json.dumps(value).encode()) == value


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.binary(max_size=60), st.text(st.sampled_from('{}[]",:\\u0189dDeE+-.tfn \u00e9'), max_size=40)))
def test_any_bytes_give_an_object_or_a_line(data: bytes | str) -> None:
    refusal: ApiError | None = None
    try:
        assert isinstance(parse_object(data.encode() if isinstance(data, str) else data), dict)
    except ApiError as error:
        refusal = error
    assert refusal is None or (refusal.status == 400 and str(refusal).isprintable())


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1])
def test_nesting_is_bounded_where_it_is_said(depth: int) -> None:
    data = b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"
    if depth <= MAX_DEPTH:
        assert parse_object(data)
    else:
        with pytest.raises(ApiError, match="levels of nesting"):
            parse_object(data)


def test_brackets_and_commas_in_texts_are_no_values() -> None:
    text = '[{,:\\"' * (PART_BYTES // 2)
    assert parse_object(json.dumps({"a": text, "b": [text]}).encode()) == {"a": text, "b": [text]}


@settings(max_examples=60, deadline=None)
@given(st.one_of(VALUES, st.lists(st.integers(), min_size=500, max_size=600)))
def test_long_answers_are_the_json_of_the_library(value: Any) -> None:
    assert json_text(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert spaced_json_text(value) == json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize("opening", ['{"a":', "[", '[1,{"":'])
def test_what_a_model_nested_is_written_as_deep_as_it_was_read(opening: str) -> None:
    closing = "".join({"{": "}", "[": "]"}.get(c, "") for c in reversed(opening))
    text = opening * 400 + "1" + closing * 400
    assert json_text(parse_json(text)) == text


def test_no_large_part_is_written_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call holds the interpreter, and every client waits."""
    text, longest = JsonText(",", ":"), 0
    encode = text.at_once

    def noted(value: Any) -> str:
        nonlocal longest
        longest = max(longest, len(found := encode(value)))
        return found

    monkeypatch.setattr(text, "at_once", noted)
    large = [0.5] * 10_000
    for value in (large, [0, large], {"a": [None, {"b": large}]}, [[], "", large], [1] * 300 + [{"a": large}]):
        assert json.loads(text(value)) == value
    assert longest <= BATCH * len("0.5,") + 1


def test_arguments_of_all_calls_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their text is JSON inside JSON, which no count of the body has seen."""
    monkeypatch.setattr(json_input, "MAX_VALUES", 100)
    budget = ValueBudget()
    assert parse_arguments('{"a": [1, 2, {"b": "c\n"}]}', budget) == {"a": [1, 2, {"b": "c\n"}]}
    assert parse_arguments('"' + "," * 1000 + '"', budget) == "," * 1000  # marks in a text are none
    for text in ("no JSON", "NaN", "1" * 5000):
        with pytest.raises(ValueError):
            parse_arguments(text, budget)
    parse_arguments("[" + "0," * 80 + "0]", budget)
    with pytest.raises(ApiError, match="100 values"):
        parse_arguments("[" + "0," * 80 + "0]", budget)
    monkeypatch.setattr(json_input, "MAX_VALUES", MAX_VALUES)
    with pytest.raises(ApiError, match="levels"):
        parse_arguments("[" * 200, ValueBudget())


def test_arguments_can_be_written_again() -> None:
    assert parse_arguments('["\\ud83d\\ude00", 1e308]', ValueBudget()) == ["\U0001f600", 1e308]
    for text in ("1e999", "[-1e999]", '"\\ud800"', '{"\\uDFFF": 1}'):
        with pytest.raises(ValueError):
            parse_arguments(text, ValueBudget())


@pytest.mark.parametrize("text", ['{"a": "\\ud800"}', '{"a": 1e999}', "no JSON"])
def test_arguments_that_are_no_json_stay_texts(server: Running, text: str) -> None:
    """They were a model's, cut or wrong: a conversation can go on from them."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": text}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    with server.client() as client:
        reply = client.post("/v1/chat/completions", json={"messages": [message], "max_tokens": 1})
    assert reply.status_code == 200, reply.text
    prompt = server.served.forms.messages([message], NOTHING)[0]["content"]
    assert json.dumps(text) in prompt


def test_arguments_of_a_conversation_are_counted(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_input, "MAX_VALUES", 300)
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "[" + "0," * 99 + "0]"}}
    message = {"role": "assistant", "content": "", "tool_calls": [call] * 4}
    with server.client() as client:
        reply = client.post("/v1/chat/completions", json={"messages": [message], "max_tokens": 1})
    assert reply.status_code == 400
    assert "values" in reply.json()["error"]["message"]
