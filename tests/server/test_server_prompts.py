"""What comes back of a prompt, how a conversation becomes one, and what tells how to repeat an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from gguf_writer import STRING
from live_server import Running, running
from random_tiny import write_random_tiny

from samebits import LLM, SamplingParams

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "hello hi"}]
PROMPT = "hello hi aaaa"


def ask(server: Running, path: str, **body: Any) -> httpx.Response:
    least = {"messages": MESSAGES} if path == CHAT else {"prompt": PROMPT}
    with server.client() as client:
        return client.post(path, json={**least, **body})


def chunks(reply: httpx.Response) -> list[dict[str, Any]]:
    parts = [part.removeprefix("data: ") for part in reply.text.strip().split("\n\n")]
    assert parts.pop() == "[DONE]"
    return [json.loads(part) for part in parts]


@pytest.mark.parametrize("max_tokens", [0, 1, 5])
@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_has_the_log_probabilities_of_a_score(
    server: Running, library: LLM, max_tokens: int, stream: bool
) -> None:
    wishes = {"echo": True, "logprobs": 2, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    reply = ask(server, COMPLETE, **wishes, stream=stream)
    parts = [c for chunk in (chunks(reply) if stream else [reply.json()]) for c in chunk["choices"]]
    text = "".join(part["text"] for part in parts)
    found = {name: [item for p in parts for item in p["logprobs"][name]] for name in parts[0]["logprobs"]}
    (plain,) = ask(server, COMPLETE, max_tokens=max_tokens, temperature=0, ignore_eos=True).json()["choices"]
    assert text == PROMPT + plain["text"]
    with server.client() as client:
        ids = client.post("/tokenize", json={"text": PROMPT}).json()["tokens"]
    score = library.score(ids, top_k=2)
    assert found["token_logprobs"][: len(ids)] == [None, *score.token_logprobs]
    assert found["top_logprobs"][0] is None
    assert [len(top) for top in found["top_logprobs"][1:]] == [2] * (len(ids) - 1 + max_tokens)
    assert len(found["tokens"]) == len(ids) + max_tokens
    for token, offset in zip(found["tokens"][1 : len(ids)], found["text_offset"][1:], strict=False):
        assert text[offset:].startswith(token)
    assert parts[-1]["finish_reason"] == "length"


def test_several_prompts_are_echoed_each(server: Running) -> None:
    reply = ask(server, COMPLETE, prompt=["hello", "aaaa é"], echo=True, max_tokens=0, n=2).json()
    assert [c["text"] for c in reply["choices"]] == ["hello", "hello", "aaaa é", "aaaa é"]
    assert reply["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize("path", [CHAT, COMPLETE])
def test_log_probabilities_of_a_prompt(server: Running, library: LLM, path: str) -> None:
    reply = ask(server, path, prompt_logprobs=1, max_tokens=2, temperature=0).json()
    found = reply["prompt_logprobs"] if path == CHAT else reply["choices"][0]["prompt_logprobs"]
    ids = server.llm.chat_prompt(MESSAGES) if path == CHAT else server.llm.encode(PROMPT)
    score = library.score(ids, top_k=1)
    assert len(found) == len(ids)
    assert found[0] is None
    for row, token, logprob, top in zip(found[1:], ids[1:], score.token_logprobs, score.top, strict=False):
        assert row[str(token)]["logprob"] == logprob
        assert set(row) == {str(token), *(str(t) for t, _ in top)}
    assert ask(server, path, prompt_logprobs=1, stream=True).json()["error"]["param"] == "prompt_logprobs"
    assert "prompt_logprobs" not in ask(server, path, max_tokens=1).text


@pytest.mark.parametrize("path", [CHAT, COMPLETE])
@pytest.mark.parametrize("n", [1, 3])
def test_a_drawn_seed_comes_back_and_repeats_the_answer(server: Running, path: str, n: int) -> None:
    wishes = {"max_tokens": 6, "n": n, "ignore_eos": True, "logits_sha256": True}
    first = ask(server, path, **wishes).json()
    assert 0 <= first["seed"] < 1 << 53
    again = ask(server, path, **wishes, seed=first["seed"]).json()
    assert again["choices"] == first["choices"]
    assert len({c["logits_sha256"] for c in first["choices"]}) == n
    assert ask(server, path, **wishes, seed=-1).json()["seed"] != first["seed"]
    streamed = chunks(ask(server, path, **wishes, seed=first["seed"], stream=True))
    assert {chunk["seed"] for chunk in streamed} == {first["seed"]}
    ends = [c for chunk in streamed for c in chunk["choices"] if "logits_sha256" in c]
    assert all(c["finish_reason"] for c in ends)
    assert {c["index"]: c["logits_sha256"] for c in ends} == {c["index"]: c["logits_sha256"] for c in first["choices"]}
    assert "logits_sha256" not in ask(server, path, max_tokens=2).text


def test_prompts_of_one_request_share_its_seed(server: Running) -> None:
    wishes = {"max_tokens": 6, "ignore_eos": True}
    both = ask(server, COMPLETE, prompt=["hello", "hi"], **wishes).json()
    second = ask(server, COMPLETE, prompt="hi", **wishes, seed=both["seed"]).json()
    assert second["choices"][0]["text"] == both["choices"][1]["text"]


def test_the_hash_is_that_of_the_library(server: Running, library: LLM) -> None:
    reply = ask(server, COMPLETE, max_tokens=5, seed=3, ignore_eos=True, logits_sha256=True).json()
    params = SamplingParams(max_tokens=5, seed=3, ignore_eos=True, hash_logits=True)
    assert reply["choices"][0]["logits_sha256"] == library.generate(PROMPT, params)[0].logits_sha256


TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}quiet{% endif %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}{# unread #}{% if false %}{{ strftime_now('%Y') }}{% endif %}"
)


@pytest.fixture(scope="module")
def templated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("template") / "template.gguf"
    with running(write_random_tiny(path, **{"tokenizer.chat_template": (STRING, TEMPLATE)})) as it:
        yield it


GOING_ON = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "I say "}]


@pytest.mark.parametrize(
    ("wishes", "prompt"),
    [
        ({}, "<user>hello hi</user><assistant>"),
        ({"add_generation_prompt": False}, "<user>hello hi</user>"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "<user>hello hi</user>quiet<assistant>"),
        ({"messages": GOING_ON, "continue_final_message": True}, "<user>hi</user><assistant>I say "),
        ({"messages": GOING_ON}, "<user>hi</user><assistant>I say </assistant><assistant>"),
    ],
)
def test_how_a_conversation_becomes_a_prompt(templated: Running, wishes: dict[str, Any], prompt: str) -> None:
    plain = {"max_tokens": 4, "temperature": 0, "seed": 1, "ignore_eos": True}
    chat = ask(templated, CHAT, **plain, **wishes).json()
    ids = templated.llm.tokenizer.encode(prompt, add_special=False)
    wanted = ask(templated, COMPLETE, prompt=ids, **plain).json()
    assert chat["usage"] == wanted["usage"]
    assert chat["choices"][0]["message"]["content"] == wanted["choices"][0]["text"]


@pytest.mark.parametrize(
    ("wishes", "param"),
    [
        ({"chat_template_kwargs": {"mood": "cheerful"}}, "chat_template_kwargs.mood"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        *(
            ({"chat_template_kwargs": {name: True}}, f"chat_template_kwargs.{name}")
            for name in ("quiet", "m", "role", "user", "if", "unread")
        ),
        (
            {"chat_template_kwargs": {"enable_thinking": False, "strftime_now": "x"}},
            "chat_template_kwargs.strftime_now",
        ),
        ({"continue_final_message": True}, "continue_final_message"),
        (
            {"messages": GOING_ON, "continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
        ),
    ],
)
def test_prompts_that_cannot_be(templated: Running, wishes: dict[str, Any], param: str) -> None:
    reply = ask(templated, CHAT, **wishes)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, param)
    assert error["message"].startswith(f"{param} is ")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"reasoning_effort": "high"}, "reasoning_effort"),
        ("/v1/responses", {"input": "hi", "reasoning": {"effort": "high"}}, "reasoning.effort"),
        ("/v1/messages", {"max_tokens": 1, "output_config": {"effort": "high"}}, "output_config.effort"),
        ("/api/chat", {"think": "high"}, "think"),
        ("/api/generate", {"prompt": "hi", "think": "high"}, "think"),
    ],
)
def test_an_effort_that_the_template_ignores_is_refused_by_the_name_of_its_field(
    templated: Running, path: str, body: dict[str, Any], param: str
) -> None:
    conversation = (
        {"messages": [{"role": "user", "content": "hi"}]} if body.keys().isdisjoint({"input", "prompt"}) else {}
    )
    with templated.client() as client:
        reply = client.post(path, json={**conversation, **body})
    error = reply.json()["error"]
    message = error if isinstance(error, str) else error["message"]
    assert (reply.status_code, message.startswith(f"{param} is ")) == (400, True), message
