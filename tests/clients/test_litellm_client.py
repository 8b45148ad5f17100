"""LiteLLM, to which we are one more of OpenAI's kind."""

from __future__ import annotations

from typing import Any

import pytest
from live_server import NAME, Running
from trip import QUESTION, Trip

litellm = pytest.importorskip("litellm", reason="needs litellm: make clients")


def test_calls_whole_and_streamed(server: Running) -> None:
    tool = {"type": "function", "function": {"name": "book", "parameters": Trip.model_json_schema()}}
    wishes: dict[str, Any] = {
        "model": f"openai/{NAME}",
        "api_base": f"{server.url}/v1",
        "api_key": "none",
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [tool],
        "tool_choice": {"type": "function", "function": {"name": "book"}},
        "temperature": 0,
        "max_tokens": 200,
    }
    said = litellm.completion(**wishes).choices[0]
    (call,) = said.message.tool_calls
    assert (said.finish_reason, call.function.name) == ("tool_calls", "book")
    Trip.model_validate_json(call.function.arguments)
    chunks = list(litellm.completion(**wishes, stream=True))
    (again,) = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    assert again.function.arguments == call.function.arguments
