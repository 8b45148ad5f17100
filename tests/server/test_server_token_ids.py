"""Ids of an answer's tokens, where asked for: the same in whole answers and in streams."""

from __future__ import annotations

import json
from typing import Any

import pytest
from live_server import Running

PROMPTS = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello hi"}]},
    "/v1/completions": {"prompt": "hello hi"},
}


@pytest.mark.parametrize("path", PROMPTS)
def test_token_ids_come_back_whole_and_streamed(server: Running, path: str) -> None:
    body: dict[str, Any] = {**PROMPTS[path], "n": 2, "max_tokens": 6, "seed": 3, "return_token_ids": True}
    with server.client() as client:
        answer = client.post(path, json=body).json()
        lines = client.post(path, json={**body, "stream": True}).text.split("\n\n")
        without = client.post(path, json={**body, "return_token_ids": False}).text
    whole = {c["index"]: c["token_ids"] for c in answer["choices"]}
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    joined: dict[int, list[int]] = {0: [], 1: []}
    for choice in (c for event in events for c in event["choices"]):
        joined[choice["index"]] += choice.get("token_ids", [])
    assert joined == whole
    assert "token_ids" not in without
    for choice in answer["choices"]:
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        assert server.llm.tokenizer.decode(choice["token_ids"], skip_special=True) == text
