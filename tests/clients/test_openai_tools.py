"""OpenAI's own package: calls, helpers that make tools of models, and its accumulating streams."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from live_server import NAME, Running
from trip import QUESTION, Trip

MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]


@pytest.fixture
def client(server: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_a_call_its_result_and_an_answer(client: openai.OpenAI) -> None:
    tool = openai.pydantic_function_tool(Trip, name="book")
    wishes: dict[str, Any] = {"model": NAME, "tools": [tool], "temperature": 0, "max_tokens": 200}
    said = client.chat.completions.create(messages=MESSAGES, tool_choice="required", **wishes).choices[0]
    assert said.finish_reason == "tool_calls"
    (call,) = said.message.tool_calls
    Trip.model_validate_json(call.function.arguments)
    history = [*MESSAGES, said.message, {"role": "tool", "tool_call_id": call.id, "content": "It is booked."}]
    wishes["max_tokens"] = 20
    answer = client.chat.completions.create(messages=history, **wishes).choices[0]
    assert answer.message.content or answer.message.tool_calls


def test_arguments_are_parsed_and_streams_accumulate(client: openai.OpenAI) -> None:
    tool = openai.pydantic_function_tool(Trip, name="book")
    wishes: dict[str, Any] = {
        "model": NAME,
        "messages": MESSAGES,
        "tools": [tool],
        "tool_choice": "required",
        "seed": 1,
    }
    parsed = client.chat.completions.parse(**wishes).choices[0].message.tool_calls[0].function
    assert isinstance(parsed.parsed_arguments, Trip)
    with client.chat.completions.stream(**wishes) as stream:
        kinds = {event.type for event in stream}
        (call,) = stream.get_final_completion().choices[0].message.tool_calls
    assert {"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= kinds
    assert json.loads(call.function.arguments) == json.loads(parsed.arguments)
