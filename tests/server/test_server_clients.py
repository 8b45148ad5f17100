"""Clients that people use, unchanged, against the real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openai
import pytest
from live_server import NAME, Running


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as it:
        yield it


def test_openai_chat_and_stream(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "hello hi"}]
    wishes = {"model": NAME, "messages": messages, "max_completion_tokens": 6, "seed": 1, "temperature": 0.7}
    whole = client.chat.completions.create(**wishes, n=2, logprobs=True, top_logprobs=1)
    assert [c.index for c in whole.choices] == [0, 1]
    assert whole.usage.prompt_tokens > 0
    assert whole.system_fingerprint.startswith("samebits-")
    pieces = list(client.chat.completions.create(**wishes, stream=True, stream_options={"include_usage": True}))
    text = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    assert text == whole.choices[0].message.content
    assert pieces[-1].usage.completion_tokens <= 6


def test_openai_completions_embeddings_and_models(client: openai.OpenAI) -> None:
    done = client.completions.create(model=NAME, prompt=["hello", "hi"], max_tokens=4, logprobs=1, stop=["zz"])
    assert len(done.choices) == 2
    vectors = client.embeddings.create(model=NAME, input=["hello", "hi"]).data  # asks for base64 by itself
    assert np.isclose(np.linalg.norm(vectors[0].embedding), 1, atol=1e-5)
    assert [m.id for m in client.models.list()] == [NAME]
    assert client.models.retrieve(NAME).id == NAME


def test_openai_errors_are_its_own_classes(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model=NAME, prompt="x", temperature=5)
    with pytest.raises(openai.NotFoundError, match="gpt-4"):
        client.completions.create(model="gpt-4", prompt="x")
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "x"}], store=True)
    assert error.value.code == "unsupported_parameter"


def test_openai_structured_output(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}}
    reply = client.chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "x"}], max_tokens=200, response_format=form, seed=0
    )
    if reply.choices[0].finish_reason == "stop":
        assert json.loads(reply.choices[0].message.content)["a"] in (1, 2)


def test_langchain(server: Running) -> None:
    langchain_openai = pytest.importorskip("langchain_openai")
    options = {"base_url": f"{server.url}/v1", "api_key": "none", "model": NAME, "max_retries": 0}
    chat = langchain_openai.ChatOpenAI(**options, max_tokens=6, temperature=0, seed=1)
    answer = chat.invoke("hello hi")
    assert answer.usage_metadata["input_tokens"] > 0
    assert "".join(str(part.content) for part in chat.stream("hello hi")) == answer.content
    embed = langchain_openai.OpenAIEmbeddings(**options, check_embedding_ctx_length=False)
    assert len(embed.embed_query("hello")) == 64


def test_the_llm_command(server: Running, tmp_path: Path) -> None:
    """Simon Willison's tool, told of the server in its own file of extra models."""
    pytest.importorskip("llm")
    entry = f"- model_id: tiny\n  model_name: {NAME}\n  api_base: {server.url}/v1\n  api_key_name: none\n"
    (tmp_path / "extra-openai-models.yaml").write_text(entry)
    env = {**os.environ, "LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "none", "LLM_LOAD_PLUGINS": ""}
    command = [sys.executable, "-m", "llm", "-m", "tiny", "hello hi", "-o", "max_tokens", "5", "-o", "temperature", "0"]
    streamed, whole = (
        subprocess.run([*command, *more], env=env, capture_output=True, timeout=120) for more in ([], ["--no-stream"])
    )
    assert streamed.returncode == 0, streamed.stderr.decode()
    assert whole.returncode == 0, whole.stderr.decode()
    assert streamed.stdout.strip() == whole.stdout.strip() != b""
