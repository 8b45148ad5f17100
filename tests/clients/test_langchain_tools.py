"""LangChain: tools that are bound to a model, its structured output, and streams that add up."""

from __future__ import annotations

from typing import Any

import pytest
from live_server import NAME, Running
from trip import QUESTION, Trip, get_weather

langchain_openai = pytest.importorskip("langchain_openai", reason="needs langchain-openai: make clients")


@pytest.fixture
def chat(server: Running) -> Any:
    options = {"base_url": f"{server.url}/v1", "api_key": "none", "model": NAME, "max_retries": 0}
    return langchain_openai.ChatOpenAI(**options, temperature=0, max_tokens=200)


@pytest.mark.parametrize("choice", ["get_weather", "any", "required"])
def test_bound_tools_are_called(chat: Any, choice: str) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage

    bound = chat.bind_tools([get_weather], tool_choice=choice)
    said = bound.invoke(QUESTION)
    (call,) = said.tool_calls
    assert call["name"] == "get_weather"
    assert set(call["args"]) == {"city", "days"}
    assert not said.invalid_tool_calls
    result = ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"])
    answer = chat.bind_tools([get_weather]).bind(max_tokens=20).invoke([HumanMessage(QUESTION), said, result])
    assert answer.content or answer.tool_calls


def test_a_stream_adds_up_to_the_call(chat: Any) -> None:
    bound = chat.bind_tools([get_weather], tool_choice="any")
    total = None
    for chunk in bound.stream(QUESTION):
        total = chunk if total is None else total + chunk
    assert [(c["name"], c["args"]) for c in total.tool_calls] == [
        (c["name"], c["args"]) for c in bound.invoke(QUESTION).tool_calls
    ]


@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
def test_structured_output(chat: Any, method: str) -> None:
    assert isinstance(chat.with_structured_output(Trip, method=method).invoke(QUESTION), Trip)
