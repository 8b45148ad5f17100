"""/v1/responses with OpenAI's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from live_server import NAME, Running

TOOL = {
    "type": "function",
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"sky": {"enum": ["blue", "grey"]}},
        "required": ["sky"],
        "additionalProperties": False,
    },
    "strict": True,
}


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as it:
        yield it


@pytest.fixture(scope="module")
def roomy_client(roomy: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{roomy.url}/v1", api_key="none", max_retries=0) as it:
        yield it


def chat_text(server: Running, messages: list[dict[str, Any]], **wishes: Any) -> str:
    with server.client() as http:
        reply = http.post("/v1/chat/completions", json={"messages": messages, **wishes}).json()
    return str(reply["choices"][0]["message"]["content"])


def test_an_answer_is_that_of_chat(client: openai.OpenAI, server: Running) -> None:
    wishes = {"temperature": 0.7, "extra_body": {"seed": 3, "logits_sha256": True}}
    reply = client.responses.create(
        model=NAME, input="hello hi", instructions="be brief", max_output_tokens=6, **wishes
    )
    told = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello hi"}]
    assert reply.output_text == chat_text(server, told, temperature=0.7, seed=3, max_tokens=6)
    assert (reply.status, reply.object, reply.model) == ("incomplete", "response", NAME)
    assert reply.incomplete_details is not None
    assert reply.incomplete_details.reason == "max_output_tokens"
    assert reply.usage is not None
    assert reply.usage.output_tokens == 6
    assert reply.usage.total_tokens == reply.usage.input_tokens + 6
    assert reply.model_extra is not None
    assert reply.model_extra["seed"] == 3
    assert len(reply.model_extra["logits_sha256"]) == 64


def test_a_stream_is_the_whole_answer_in_events(client: openai.OpenAI) -> None:
    wishes = {"model": NAME, "input": "hello hi", "max_output_tokens": 8, "extra_body": {"seed": 3}}
    whole = client.responses.create(**wishes)
    with client.responses.stream(**wishes) as stream:
        events = list(stream)
    final = events[-1].response
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[2:4] == ["response.output_item.added", "response.content_part.added"]
    assert kinds[-1] == "response.incomplete"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text == final.output_text
    assert final.usage == whole.usage


def test_a_conversation_of_items(client: openai.OpenAI, server: Running) -> None:
    items = [
        {"role": "developer", "content": [{"type": "input_text", "text": "be brief"}]},
        {"role": "user", "content": "hello"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "aa"}, {"type": "input_text", "text": "aa"}]},
    ]
    reply = client.responses.create(model=NAME, input=items, max_output_tokens=5, temperature=0)
    roles = ["system", "user", "assistant", "user"]
    texts = ["be brief", "hello", "hi", "aaaa"]
    told = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    assert reply.output_text == chat_text(server, told, temperature=0, max_tokens=5)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_forced_call_and_its_result(roomy_client: openai.OpenAI, is_streamed: bool) -> None:
    wishes: dict[str, Any] = {"model": NAME, "tools": [TOOL], "max_output_tokens": 200, "extra_body": {"seed": 1}}
    chosen = {"type": "function", "name": "weather"}
    if is_streamed:
        with roomy_client.responses.stream(**wishes, input="hello", tool_choice=chosen) as stream:
            deltas = [e.delta for e in stream if e.type == "response.function_call_arguments.delta"]
            reply = stream.get_final_response()
        assert "".join(deltas) == reply.output[-1].arguments
    else:
        reply = roomy_client.responses.create(**wishes, input="hello", tool_choice=chosen)
    (call,) = (item for item in reply.output if item.type == "function_call")
    assert (call.name, reply.status) == ("weather", "completed")
    assert json.loads(call.arguments)["sky"] in ("blue", "grey")
    history = [
        {"role": "user", "content": "hello"},
        {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
        {"type": "function_call_output", "call_id": call.call_id, "output": "it rains"},
    ]
    wishes["max_output_tokens"] = 5
    assert roomy_client.responses.create(**wishes, input=history, tool_choice="none").usage.output_tokens <= 5


def test_a_call_that_is_cut_is_incomplete(roomy_client: openai.OpenAI) -> None:
    wishes: dict[str, Any] = {"model": NAME, "tools": [TOOL], "input": "hello", "extra_body": {"seed": 1}}
    for max_tokens in (1, 4):
        reply = roomy_client.responses.create(**wishes, tool_choice="required", max_output_tokens=max_tokens)
        assert reply.status == "incomplete"
        assert {item.status for item in reply.output} <= {"incomplete"}


def test_text_held_to_a_schema(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    form = {"format": {"type": "json_schema", "name": "s", "schema": schema, "strict": True}}
    reply = client.responses.create(model=NAME, input="x", text=form, max_output_tokens=300, extra_body={"seed": 1})
    if reply.status == "completed":
        assert json.loads(reply.output_text)["a"] in (1, 2)
    else:
        assert reply.output_text.lstrip().startswith("{")


def test_log_probabilities(client: openai.OpenAI) -> None:
    reply = client.responses.create(
        model=NAME,
        input="hello",
        max_output_tokens=4,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        extra_body={"ignore_eos": True},  # a draw may be the end of the text
    )
    found = reply.output[-1].content[0].logprobs
    assert len(found) == 4
    assert all(len(entry.top_logprobs) == 2 for entry in found)


@pytest.mark.parametrize(
    ("wishes", "param"),
    [
        ({"store": True}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"extra_body": {"n": 2}}, "n"),
        ({"extra_body": {"mood": "x"}}, "mood"),
        ({"extra_body": {"prompt_logprobs": 1}}, "prompt_logprobs"),
        ({"extra_body": {"typical_p": 0.5}}, "typical_p"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input.0.call_id"),
        ({"input": []}, "input"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(client: openai.OpenAI, wishes: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(**{"model": NAME, "input": "hello", **wishes})
    assert str(error.value.param).startswith(param)


def test_errors_of_other_kinds(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="gpt-5"):
        client.responses.create(model="gpt-5", input="x")
    with pytest.raises(openai.BadRequestError, match="input"):
        client.responses.create(model=NAME, input="x" * 5000)
