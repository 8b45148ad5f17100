"""Tools over HTTP: choices that are kept, streams that say the same, histories with calls and results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gguf_writer import STRING
from live_server import Running, running
from random_tiny import write_random_tiny

from samebits.core.sampling_defaults import NEUTRAL
from samebits.server.tools.in_text import as_text
from samebits.server.tools.offer import NOTHING as NO_TOOLS
from samebits.server.tools.offer import Tool

CHAT = "/v1/chat/completions"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 5}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "W.", "parameters": SCHEMA}}
STRICT = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
PING = {"type": "function", "function": {"name": "ping"}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
CALLED = {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
HISTORY = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": None, "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "abcdefghi", "content": "sun"},
]
# A template that knows tools, and prints all that it is given.
KNOWING = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m.role }}|{{ m.name }}]{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}{{ c.function.arguments.city }}{% endfor %}"
    "{% endfor %}"
)


@pytest.fixture(scope="module")
def roomy(model_path: Path) -> Iterator[Running]:
    """Our section of the system prompt takes hundreds of this model's tokens, which are bytes."""
    with running(model_path, llm_options={"context_len": 2048}) as it:
        yield it


def asked(**more: Any) -> dict[str, Any]:
    wishes = {"messages": [{"role": "user", "content": "hi"}], "tools": [WEATHER, PING], "max_tokens": 500, "seed": 3}
    return wishes | more


def choices(server: Running, **more: Any) -> list[dict[str, Any]]:
    with server.client() as client:
        reply = client.post(CHAT, json=asked(**more))
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"]


def check_arguments(call: dict[str, Any]) -> None:
    arguments = json.loads(call["function"]["arguments"])
    if call["function"]["name"] == "ping":
        assert arguments == {}
    else:
        assert set(arguments) == {"city", "days"}
        assert len(arguments["city"]) <= 5
        assert 1 <= arguments["days"] <= 9


def test_a_function_that_is_chosen_is_called_once_by_its_schema(roomy: Running) -> None:
    for choice in choices(roomy, tool_choice=NAMED, n=3, parallel_tool_calls=True):
        (call,) = choice["message"]["tool_calls"]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
        assert (call["type"], call["function"]["name"], len(call["id"])) == ("function", "get_weather", 9)
        check_arguments(call)


def test_a_required_call_comes_and_several_where_they_are_asked_for(roomy: Running) -> None:
    for choice in choices(roomy, tool_choice="required", n=2):
        (call,) = choice["message"]["tool_calls"]
        check_arguments(call)
    counts = []
    neutral = NEUTRAL.values()  # a cut distribution seldom goes on to another call
    for choice in choices(roomy, tool_choice="required", parallel_tool_calls=True, n=8, max_tokens=1500, **neutral):
        calls = choice["message"]["tool_calls"]
        counts.append(len(calls))
        assert len({call["id"] for call in calls}) == len(calls)
        for call in calls:
            check_arguments(call)
    assert max(counts) > 1


def test_calls_and_their_ids_are_the_same_for_the_same_seed(roomy: Running) -> None:
    one, again, other = (choices(roomy, tool_choice="required", seed=seed, temperature=0)[0] for seed in (1, 1, 2))
    assert one == again
    assert one["message"]["tool_calls"][0]["id"] != other["message"]["tool_calls"][0]["id"]


def joined(lines: Iterator[str]) -> list[dict[str, Any]]:
    """The choices that the chunks of a stream add up to."""
    told: dict[int, dict[str, Any]] = {}
    for line in lines:
        if not line.startswith("data: {"):
            continue
        for part in json.loads(line[6:])["choices"]:
            message = told.setdefault(part["index"], {"content": "", "tool_calls": {}, "finish_reason": None})
            message["content"] += part["delta"].get("content") or ""
            message["finish_reason"] = part["finish_reason"] or message["finish_reason"]
            for delta in part["delta"].get("tool_calls", ()):
                call = message["tool_calls"].setdefault(delta["index"], {"function": {"arguments": ""}})
                call |= {key: delta[key] for key in ("id", "type") if key in delta}
                if "name" in delta["function"]:
                    call["function"]["name"] = delta["function"]["name"]
                call["function"]["arguments"] += delta["function"]["arguments"]
    return [told[index] for index in sorted(told)]


@pytest.mark.parametrize("choice", ["required", "auto", NAMED])
def test_a_stream_says_what_the_whole_answer_says(roomy: Running, choice: Any) -> None:
    wishes = asked(tool_choice=choice, n=2, max_tokens=200)
    with roomy.client() as client, client.stream("POST", CHAT, json=wishes | {"stream": True}) as reply:
        streamed = joined(reply.iter_lines())
    for said, whole in zip(streamed, choices(roomy, **wishes), strict=True):
        assert said["finish_reason"] == whole["finish_reason"]
        assert said["content"] == (whole["message"]["content"] or "")
        assert list(said["tool_calls"].values()) == whole["message"].get("tool_calls", [])


def test_no_choice_shows_no_tools(roomy: Running) -> None:
    with roomy.client() as client:
        none, without, auto = (
            client.post(CHAT, json=asked(max_tokens=3, **more)).json()
            for more in ({"tool_choice": "none"}, {"tools": []}, {})
        )
    assert none["choices"] == without["choices"]
    assert none["usage"]["prompt_tokens"] == without["usage"]["prompt_tokens"] < auto["usage"]["prompt_tokens"]


def test_a_strict_function_or_single_calls_leave_text_free(roomy: Running) -> None:
    for more in ({"tools": [STRICT]}, {"parallel_tool_calls": False}):
        (choice,) = choices(roomy, max_tokens=20, **more)
        assert choice["message"]["content"]
        assert choice["finish_reason"] == "length"


def test_text_in_a_format_beside_tools(roomy: Running) -> None:
    form = {"type": "regex", "pattern": "(ab|c/d)"}
    said = [choice["message"] for choice in choices(roomy, tools=[STRICT], response_format=form, n=16, temperature=2)]
    assert {message["content"] for message in said} <= {"ab", "c/d", None}
    assert any(message["content"] for message in said)
    for message in said:
        assert message["content"] or message["tool_calls"]


def test_a_history_with_calls_goes_through_a_template_without_tools(roomy: Running) -> None:
    (choice,) = choices(roomy, messages=HISTORY, max_tokens=3)
    assert choice["finish_reason"] in ("stop", "length")
    told = roomy.served.forms.messages([{**m, "content": m["content"] or ""} for m in HISTORY], NO_TOOLS)
    assert [m["role"] for m in told] == ["user", "assistant", "user"]
    assert told[1]["content"] == '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    assert told[2]["content"] == "<tool_response>\nsun\n</tool_response>"


def test_our_section_goes_where_the_template_takes_it() -> None:
    tools, hello = (Tool("f"),), {"role": "user", "content": "hi"}
    assert [m["role"] for m in as_text([hello], tools, takes_system=True)] == ["system", "user"]
    (only,) = as_text([hello], tools, takes_system=False)
    assert only["content"].startswith("You can call functions.")
    assert only["content"].endswith("as usual.\n\nhi")
    first, _ = as_text([{"role": "system", "content": "Be kind."}, hello], tools, takes_system=True)
    assert first["content"].startswith("Be kind.\n\nYou can call functions.")


@pytest.fixture(scope="module")
def knowing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("knowing") / "m.gguf"
    write_random_tiny(path, **{"tokenizer.chat_template": (STRING, KNOWING)})
    with running(path, llm_options={"context_len": 2048}) as it:
        yield it


def test_a_template_that_knows_tools_formats_them_itself(knowing: Running) -> None:
    forms, llm = knowing.served.forms, knowing.llm
    messages = forms.messages([{**m, "content": m["content"] or ""} for m in HISTORY], NO_TOOLS)
    text = llm.tokenizer.decode(llm.chat_prompt(messages, tools=[WEATHER]))
    assert text.startswith('[{"type": "function", "function": {"name": "get_weather"')
    assert text.endswith("[assistant|]<tool_call>get_weatherOslo[tool|get_weather]sun")
    (choice,) = choices(knowing, tool_choice=NAMED)
    check_arguments(choice["message"]["tool_calls"][0])


BAD = [
    ({"tool_choice": "required", "tools": None}, "tools is missing: it must be a list of functions"),
    ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice is g, but must be the name of one"),
    ({"tool_choice": {"type": "function", "function": {"name": "both"}}}, "tool_choice is 'both', but must be"),
    ({"tools": [PING, PING]}, "tools has 2 functions named ping"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name is"),
    ({"tools": [{"type": "web_search"}]}, "tools.0"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]}, "is type string"),
    ({"tools": [PING] * 129}, "at most 128 items"),
    ({"tool_choice": "any"}, "tool_choice"),
    ({"functions": [{"name": "f"}], "tools": None}, "functions is not supported"),
    ({"function_call": {"name": "f"}}, "function_call is not supported"),
    ({"messages": [{"role": "assistant", "content": None}]}, "messages.content is missing"),
    ({"messages": [{"role": "user", "content": None}]}, "messages.content is missing"),
    ({"messages": [{"role": "user", "content": "x", "tool_calls": [CALLED]}]}, "messages.tool_calls"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.tool_call_id is missing"),
    ({"messages": [{"role": "function", "name": "f", "content": "x"}]}, "messages.0.role"),
    (
        {"tool_choice": NAMED, "tools": [{**WEATHER, "function": {"name": "get_weather", "parameters": {"allOf": 3}}}]},
        "tools cannot be compiled: ",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("more", "said"), BAD)
def test_what_makes_no_sense_is_refused_in_a_line(roomy: Running, more: dict[str, Any], said: str) -> None:
    with roomy.client() as client:
        reply = client.post(CHAT, json=asked(**more))
    assert reply.status_code == 400, reply.text
    assert said in reply.json()["error"]["message"]


def test_a_forced_call_that_is_cut_is_there_as_far_as_it_came(roomy: Running) -> None:
    (whole,) = choices(roomy, tool_choice=NAMED)
    for max_tokens in (30, 60):  # in its name, and in its arguments
        (choice,) = choices(roomy, tool_choice=NAMED, max_tokens=max_tokens)
        assert choice["finish_reason"] == "length"
        if max_tokens == 30:
            assert "tool_calls" not in choice["message"]
            assert choice["message"]["content"].startswith("<tool_call>")
        else:
            (call,) = choice["message"]["tool_calls"]
            assert whole["message"]["tool_calls"][0]["function"]["arguments"].startswith(call["function"]["arguments"])


def test_a_stop_string_in_a_forced_call_leaves_no_whole_call(roomy: Running) -> None:
    (choice,) = choices(roomy, tool_choice=NAMED, stop=['"days"'])
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"].endswith(", ")


def test_arguments_of_a_forced_call_come_in_parts(roomy: Running) -> None:
    with roomy.client() as client:
        lines = client.post(CHAT, json=asked(tool_choice=NAMED, stream=True)).text.splitlines()
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines if line.startswith("data: {")]
    parts = [d["tool_calls"][0]["function"]["arguments"] for d in deltas if "tool_calls" in d]
    assert len(parts) > 5
    assert json.loads("".join(parts))


def test_hostile_schemas_cost_their_own_request_alone(roomy: Running) -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(40):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"]}
    wide = {"type": "object", "properties": {f"p{i}": {"enum": [f"{i}{j}" for j in range(50)]} for i in range(200)}}
    with roomy.client() as client:
        for schema in (deep, wide, {"type": "object", "properties": {"a": {"pattern": "(a{1,9000}){1,9000}"}}}):
            tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
            reply = client.post(CHAT, json=asked(tools=[tool], tool_choice="required", max_tokens=3))
            assert reply.status_code in (200, 400)
    assert httpx.get(f"{roomy.url}/health", verify=False).status_code == 200
    roomy.check_idle()
