"""pydantic-ai: an agent with a type for its output, which is a call that it requires."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from live_server import NAME, Running
from trip import QUESTION, Trip, get_weather

pydantic_ai = pytest.importorskip("pydantic_ai", reason="needs pydantic-ai: make clients")


async def asked(server: Running, options: dict[str, Any], *questions: str) -> list[Any]:
    """An agent's outputs, each question with the history of those before it."""
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    outputs, history = [], []
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        model = OpenAIChatModel(NAME, provider=OpenAIProvider(openai_client=client))
        agent = pydantic_ai.Agent(model, model_settings={"temperature": 0, "max_tokens": 200}, retries=0, **options)
        for question in questions:
            result = await agent.run(question, message_history=history)
            history = result.all_messages()
            outputs.append(result.output)
    return outputs


def test_an_output_type(server: Running) -> None:
    outputs = asyncio.run(asked(server, {"output_type": Trip}, QUESTION, "And Rome?"))
    assert [type(output) for output in outputs] == [Trip, Trip]


def test_a_tool_and_text(server: Running) -> None:
    (output,) = asyncio.run(asked(server, {"tools": [get_weather]}, QUESTION))
    assert isinstance(output, str)
