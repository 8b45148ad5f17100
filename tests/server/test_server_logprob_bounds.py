"""Log-probabilities of prompts are made once per prompt, whatever the number of its choices, and bounded in number."""

from __future__ import annotations

import json
from typing import Any

import pytest
from live_server import Running

from samebits.server import limits
from samebits.server.answers import common, completions, engine_streams

COMPLETE, CHAT = "/v1/completions", "/v1/chat/completions"
IDS = [5, 6, 7] * 30
MESSAGES = [{"role": "user", "content": "hello hi"}]
FORMS = [
    pytest.param({"echo": True, "logprobs": 3}, id="echo"),
    pytest.param({"prompt_logprobs": 3}, id="prompt_logprobs"),
    pytest.param({"echo": True, "logprobs": 2, "prompt_logprobs": 3}, id="both"),
    pytest.param({"echo": True, "logprobs": 3, "stream": True}, id="streamed echo"),
]


def named(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gains each token whose text an answer asks for."""
    seen = list[int]()
    for module, name in ((common, "token_text"), (completions, "token_name")):
        plain = getattr(module, name)

        def count(tokenizer: Any, token: int, plain: Any = plain) -> Any:
            seen.append(token)
            return plain(tokenizer, token)

        monkeypatch.setattr(module, name, count)
    return seen


@pytest.mark.parametrize("form", FORMS)
def test_choices_share_what_is_said_of_their_prompt(
    server: Running, form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, counts = named(monkeypatch), []
    for n in (1, 8):
        seen.clear()
        with server.client() as client:
            body = {"prompt": [IDS, IDS[1:]], "n": n, "max_tokens": 1, "ignore_eos": True, "seed": 1, **form}
            assert client.post(COMPLETE, json=body).status_code == 200
        counts.append(len(seen))
    of_a_token = 1 + 2 * (1 + 3)  # its name, the name its alternatives are compared to, and their names
    assert counts[1] <= counts[0] + 2 * 7 * of_a_token


@pytest.mark.parametrize("form", FORMS)
def test_too_many_of_prompts_are_refused_before_anything_runs(
    server: Running, form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_a_token = ("echo" in form) * (1 + form.get("logprobs", 0)) + (1 + form.get("prompt_logprobs", -1))
    most = 2 * len(IDS) * of_a_token * 4
    body = {"prompt": [IDS, IDS], "n": 4, "max_tokens": 1, **form}
    with server.client() as client:
        monkeypatch.setattr(engine_streams, "MAX_LOGPROBS", most)
        assert client.post(COMPLETE, json=body).status_code == 200
        monkeypatch.setattr(engine_streams, "MAX_LOGPROBS", most - 1)
        monkeypatch.setattr(server.llm.engine, "_add", lambda *_: pytest.fail("it was started"))
        reply = client.post(COMPLETE, json=body)
    assert reply.status_code == 400
    assert f"{most} log-probabilities" in reply.json()["error"]["message"]


def test_those_of_a_conversation_are_bounded_too(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_streams, "MAX_LOGPROBS", 20)
    with server.client() as client:
        reply = client.post(CHAT, json={"messages": MESSAGES, "prompt_logprobs": 20, "max_tokens": 1})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "prompt_logprobs"


@pytest.mark.parametrize("is_streamed", [False, True])
def test_those_of_answers_are_bounded(server: Running, is_streamed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_streams, "MAX_LOGPROBS", 100)
    asked = {"n": 3, "max_tokens": 20, "ignore_eos": True, "stream": is_streamed}
    bodies = [
        (COMPLETE, {"prompt": ["hello", "hi"], "logprobs": 1, **asked}),
        (CHAT, {"messages": MESSAGES, "logprobs": True, "top_logprobs": 3, **asked}),
    ]
    for path, body in bodies:
        with server.client() as client:
            reply = client.post(path, json=body)
        assert reply.status_code == (200 if is_streamed else 400)
        text = reply.text.split("data: ")[-2] if is_streamed else reply.text
        assert "log-probabilities" in json.loads(text)["error"]["message"]
        server.check_idle()


def test_the_bound_leaves_room_for_what_clients_ask() -> None:
    """A context of 8,192 tokens with 20 alternatives at each, and 128 prompts of 1,024 with one as evaluations ask."""
    assert max(8192 * 21, 128 * 1024 * 2) <= limits.MAX_LOGPROBS
