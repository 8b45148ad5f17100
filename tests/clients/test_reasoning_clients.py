"""Clients that show what a model thinks: they find it where we put it, whole and streamed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from live_server import NAME, Running
from test_model_forms import MESSAGES, USER_DEFINED, serving

HELLO: list[Any] = [{"role": "user", "content": "hi"}]
TEMPLATE = MESSAGES + "<think>{# </think> #}"
TOKENS = {"<think>": USER_DEFINED, "</think>": USER_DEFINED}


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A random model, whose template makes it think."""
    folder: Path = tmp_path_factory.mktemp("thinking")
    with serving(folder / "m.gguf", TEMPLATE, TOKENS) as it:
        yield it


def test_openai(thinking: Running) -> None:
    wishes: dict[str, Any] = {"model": NAME, "messages": HELLO, "max_tokens": 20, "seed": 1}
    with openai.OpenAI(base_url=f"{thinking.url}/v1", api_key="none", max_retries=0) as client:
        whole = client.chat.completions.create(**wishes).choices[0].message
        deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**wishes, stream=True)]
    assert whole.reasoning_content
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == whole.reasoning_content


def test_litellm(thinking: Running) -> None:
    litellm = pytest.importorskip("litellm", reason="needs litellm: make clients")
    wishes: dict[str, Any] = {"model": f"openai/{NAME}", "api_base": f"{thinking.url}/v1", "api_key": "none"}
    wishes |= {"messages": HELLO, "max_tokens": 20, "seed": 1}
    whole = litellm.completion(**wishes).choices[0].message.reasoning_content
    chunks = list(litellm.completion(**wishes, stream=True))
    assert whole
    assert litellm.stream_chunk_builder(chunks).choices[0].message.reasoning_content == whole


def test_pydantic_ai(thinking: Running) -> None:
    pytest.importorskip("pydantic_ai", reason="needs pydantic-ai: make clients")
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest, ThinkingPart
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async def ask() -> Any:
        async with openai.AsyncOpenAI(base_url=f"{thinking.url}/v1", api_key="none", max_retries=0) as client:
            model = OpenAIChatModel(NAME, provider=OpenAIProvider(openai_client=client))
            settings: Any = {"max_tokens": 20, "seed": 1}
            return await model_request(model, [ModelRequest.user_text_prompt("hi")], model_settings=settings)

    assert any(isinstance(part, ThinkingPart) and part.content for part in asyncio.run(ask()).parts)
