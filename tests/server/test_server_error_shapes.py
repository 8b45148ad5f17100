"""Errors in each protocol's own shape: at the door, of a body, and in the midst of a stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from live_server import Running

HELLO = [{"role": "user", "content": "hello hi"}]
Reader = Callable[[dict[str, Any]], str]


def openai_message(told: dict[str, Any]) -> str:
    assert told["error"].keys() == {"message", "type", "param", "code"}
    return str(told["error"]["message"])


def messages_message(told: dict[str, Any]) -> str:
    assert (told["type"], told["error"].keys()) == ("error", {"type", "message"})
    return str(told["error"]["message"])


def ollama_message(told: dict[str, Any]) -> str:
    assert told.keys() == {"error"}
    return str(told["error"])


ROUTES: dict[str, tuple[dict[str, Any], Reader]] = {
    "/v1/chat/completions": ({"messages": HELLO}, openai_message),
    "/v1/completions": ({"prompt": "hello"}, openai_message),
    "/v1/responses": ({"input": "hello"}, openai_message),
    "/v1/messages": ({"messages": HELLO, "max_tokens": 4}, messages_message),
    "/api/chat": ({"messages": HELLO}, ollama_message),
    "/api/generate": ({"prompt": "hello"}, ollama_message),
}


@pytest.mark.parametrize("path", ROUTES)
def test_errors_before_an_answer(server: Running, path: str) -> None:
    body, read = ROUTES[path]
    with server.client() as client:
        replies: dict[int, httpx.Response] = {
            415: client.post(path, content=b"{}", headers={"content-type": "text/plain"}),
            403: client.post(path, json=body, headers={"host": "evil.example"}),
            413: client.post(path, content=b" " * (5 << 20), headers={"content-type": "application/json"}),
            405: client.put(path),
            400: client.post(path, json={**body, "mood": 1}),
            404: client.post(path, json={**body, "model": "other"}),
        }
    for status, reply in replies.items():
        assert reply.status_code == status
        assert read(reply.json())


@pytest.mark.parametrize("path", ROUTES)
def test_a_request_that_fails_in_the_midst_of_a_stream(server: Running, path: str) -> None:
    """What it rules out leaves nothing to draw: that shows when the first token is drawn."""
    body, read = ROUTES[path]
    with server.client() as client:
        (letter,) = client.post("/tokenize", json={"text": "q", "add_special": False}).json()["tokens"]
        wishes = {"allowed_token_ids": [letter], "bad_words": ["q"]}
        if path.startswith("/api/"):
            wishes = {"options": wishes}
        text = client.post(path, json={**body, **wishes, "stream": True}).text
    parts = [line.removeprefix("data: ") for line in text.splitlines() if line and not line.startswith("event: ")]
    told = json.loads([part for part in parts if part != "[DONE]"][-1])
    if path == "/v1/responses":
        assert told["type"] == "error"
        told = {"error": {**told, "type": ""}}
        told["error"].pop("sequence_number")
    assert "none that is allowed" in read(told)
    server.check_idle()
