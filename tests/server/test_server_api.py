"""The API, request by request: what is honoured, what is refused, and in which words."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from gguf_writer import STRING
from live_server import NAME, Running, running
from random_tiny import write_random_tiny

from samebits import LLM
from samebits.server.http.security import Door
from samebits.server.limits import Limits
from samebits.server.model import ServedModel

CHAT = "/v1/chat/completions"
COMPLETE = "/v1/completions"
MESSAGES = [{"role": "user", "content": "hello hi"}]


def ask(server: Running, path: str, **body: Any) -> httpx.Response:
    with server.client() as client:
        return client.post(path, json=body)


def events(text: str) -> list[Any]:
    parts = [part.removeprefix("data: ") for part in text.strip().split("\n\n")]
    assert parts[-1] == "[DONE]"
    return [json.loads(part) for part in parts[:-1]]


def test_a_chat_answer_has_openais_shape(server: Running) -> None:
    reply = ask(server, CHAT, model=NAME, messages=MESSAGES, max_tokens=5, temperature=0, ignore_eos=True)
    body = reply.json()
    assert reply.status_code == 200
    assert (body["object"], body["model"]) == ("chat.completion", NAME)
    (choice,) = body["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 5
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + 5
    assert reply.headers["x-samebits-tier"] == "portable"
    assert body["system_fingerprint"].startswith("samebits-")
    assert "portable" in body["system_fingerprint"]


@pytest.mark.parametrize("path", [CHAT, COMPLETE])
@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_is_the_whole_answer_in_pieces(server: Running, path: str, n: int) -> None:
    what = {"messages": MESSAGES} if path == CHAT else {"prompt": "hello hi"}
    params = {**what, "max_tokens": 8, "temperature": 1.0, "seed": 5, "n": n, "ignore_eos": True}
    whole = ask(server, path, **params).json()
    chunks = events(ask(server, path, **params, stream=True, stream_options={"include_usage": True}).text)
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    for choice in whole["choices"]:
        parts = [c for chunk in chunks[:-1] for c in chunk["choices"] if c["index"] == choice["index"]]
        if path == CHAT:
            assert parts[0]["delta"]["role"] == "assistant"
            assert "".join(p["delta"].get("content") or "" for p in parts) == choice["message"]["content"]
        else:
            assert "".join(p["text"] for p in parts) == choice["text"]
        assert [p["finish_reason"] for p in parts][-1] == choice["finish_reason"]
        assert all(p["finish_reason"] is None for p in parts[:-1])


@pytest.mark.parametrize("path", [CHAT, COMPLETE])
@pytest.mark.parametrize("options", [{}, {"include_usage": True}])
def test_usage_in_every_chunk(server: Running, path: str, options: dict[str, bool]) -> None:
    """Each chunk counts its choice's tokens so far, as in vLLM, and the last chunk all tokens of the request."""
    what = {"messages": MESSAGES} if path == CHAT else {"prompt": "hello hi"}
    params = {**what, "max_tokens": 8, "seed": 5, "n": 2, "stop": ["e", "\n"], "return_token_ids": True}
    whole = ask(server, path, **params).json()
    every = {**options, "continuous_usage_stats": True}
    *chunks, last = events(ask(server, path, **params, stream=True, stream_options=every).text)
    assert (last["choices"], last["usage"]) == ([], whole["usage"])
    num_prompt_tokens, counted = whole["usage"]["prompt_tokens"], dict.fromkeys(range(2), 0)
    for chunk in chunks:
        (part,) = chunk["choices"]
        counted[part["index"]] += len(part.get("token_ids", ()))
        num_tokens = counted[part["index"]]
        assert chunk["usage"] == {
            "prompt_tokens": num_prompt_tokens,
            "completion_tokens": num_tokens,
            "total_tokens": num_prompt_tokens + num_tokens,
        }
    assert counted == {c["index"]: len(c["token_ids"]) for c in whole["choices"]}


def test_usage_in_every_chunk_and_in_none_contradict_each_other(server: Running) -> None:
    options = {"include_usage": False, "continuous_usage_stats": True}
    reply = ask(server, CHAT, messages=MESSAGES, stream=True, stream_options=options)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "stream_options.continuous_usage_stats")
    off = {"include_usage": True, "continuous_usage_stats": False}
    *chunks, _ = events(ask(server, CHAT, messages=MESSAGES, max_tokens=2, stream=True, stream_options=off).text)
    assert all(chunk["usage"] is None for chunk in chunks)


def test_null_fields_are_defaults(server: Running) -> None:
    names = "max_tokens temperature n stop stream logprobs seed logit_bias response_format tools user"
    nulls = dict.fromkeys(names.split())
    assert ask(server, CHAT, messages=MESSAGES, max_completion_tokens=2, **nulls).status_code == 200


def test_logprobs_of_chat_and_completions(server: Running) -> None:
    params = {"max_tokens": 3, "temperature": 0, "ignore_eos": True}
    chat = ask(server, CHAT, messages=MESSAGES, logprobs=True, top_logprobs=2, **params).json()
    content = chat["choices"][0]["logprobs"]["content"]
    assert len(content) == 3
    assert [len(c["top_logprobs"]) for c in content] == [2, 2, 2]
    assert all(c["top_logprobs"][0]["logprob"] == c["logprob"] for c in content)
    assert all(bytes(c["bytes"]).decode("utf-8", "replace") == c["token"] for c in content)
    plain = ask(server, COMPLETE, prompt=[5, 6, 7], logprobs=2, **params).json()["choices"][0]["logprobs"]
    assert [len(plain[key]) for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")] == [3, 3, 3, 3]


def test_prompts_in_every_form(server: Running) -> None:
    params = {"max_tokens": 4, "temperature": 0, "ignore_eos": True}
    one = ask(server, COMPLETE, prompt="hello hi", **params).json()["choices"]
    ids = ask(server, "/tokenize", text="hello hi").json()["tokens"]
    assert ask(server, COMPLETE, prompt=ids, **params).json()["choices"] == one
    several = ask(server, COMPLETE, prompt=["hello hi", "aaaa"], **params).json()["choices"]
    assert several[0] == one[0]
    assert [c["index"] for c in several] == [0, 1]
    assert ask(server, COMPLETE, prompt=[ids, ids], **params).json()["choices"][1]["text"] == one[0]["text"]
    assert ask(server, "/detokenize", tokens=ids).json()["text"] == "hello hi"


def test_embeddings(server: Running) -> None:
    reply = ask(server, "/v1/embeddings", input=["hello hi", "aaaa"], model=NAME).json()
    first = np.array(reply["data"][0]["embedding"], np.float32)
    assert abs(float(first @ first) - 1) < 1e-5
    packed = ask(server, "/v1/embeddings", input="hello hi", encoding_format="base64").json()["data"][0]["embedding"]
    assert np.frombuffer(base64.b64decode(packed), "<f4").tobytes() == first.tobytes()
    last = ask(server, "/v1/embeddings", input="hello hi", pooling="last").json()["data"][0]["embedding"]
    assert last != reply["data"][0]["embedding"]


SCHEMA = {
    "type": "object",
    "properties": {"x": {"type": "boolean"}, "y": {"enum": ["a", "b"]}},
    "required": ["x", "y"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("kind", "is_kept"),
    [
        (
            {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
            lambda text: json.loads(text).keys() == {"x", "y"} and json.loads(text)["y"] in "ab",
        ),
        ({"type": "regex", "pattern": "(ab|cd){3}"}, lambda text: len(text) == 6 and set(text) <= set("abcd")),
    ],
)
def test_response_formats_are_kept_by_a_model_of_random_weights(server: Running, kind: Any, is_kept: Any) -> None:
    params = {"messages": MESSAGES, "max_tokens": 100, "temperature": 0.2, "response_format": kind, "n": 3, "seed": 1}
    blanks = ask(server, "/tokenize", text=" \t\r\n").json()["tokens"]
    bias = {str(i): -100.0 for i in blanks}  # white space may go on for ever
    for choice in ask(server, CHAT, **params, logit_bias=bias).json()["choices"]:
        assert choice["finish_reason"] == "stop"
        assert is_kept(choice["message"]["content"])


def test_a_json_object_begins_as_one(server: Running) -> None:
    params = {"messages": MESSAGES, "max_tokens": 20, "response_format": {"type": "json_object"}, "seed": 1}
    text = ask(server, CHAT, **params).json()["choices"][0]["message"]["content"]
    assert text.lstrip().startswith("{")


REFUSALS = [
    (CHAT, {"messages": []}, 400, "messages"),
    (CHAT, {"messages": [{"role": "robot", "content": "x"}]}, 400, "messages.0.role"),
    (CHAT, {"messages": MESSAGES, "temperature": 3}, 400, "temperature"),
    (CHAT, {"messages": MESSAGES, "temperature": "hot"}, 400, "temperature"),
    (CHAT, {"messages": MESSAGES, "n": 0}, 400, "n"),
    (CHAT, {"messages": MESSAGES, "n": 99}, 400, "n"),
    (CHAT, {"messages": MESSAGES, "max_tokens": -2}, 400, "max_tokens"),
    (CHAT, {"messages": MESSAGES, "stop": ["x"] * 99}, 400, "stop"),
    (CHAT, {"messages": MESSAGES, "tools": [{"type": "function"}]}, 400, "tools"),
    (CHAT, {"messages": MESSAGES, "top_logprobs": 2}, 400, "top_logprobs"),
    (CHAT, {"messages": MESSAGES, "logit_bias": {"99999": 1}}, 400, "logit_bias"),
    (CHAT, {"messages": MESSAGES, "logit_bias": {"x": 1}}, 400, "logit_bias"),
    (CHAT, {"messages": MESSAGES, "model": "gpt-4"}, 404, "model"),
    (CHAT, {"messages": MESSAGES, "response_format": {"type": "json_schema"}}, 400, "response_format.json_schema"),
    (CHAT, {"messages": MESSAGES, "response_format": {"type": "regex", "pattern": "("}}, 400, "response_format"),
    (CHAT, {"messages": [{"role": "user", "content": "x" * 5000}]}, 400, "messages"),
    (COMPLETE, {"prompt": []}, 400, "prompt"),
    (COMPLETE, {"prompt": [[]]}, 400, "prompt"),
    (COMPLETE, {"prompt": [5] * 5000}, 400, "prompt"),
    (COMPLETE, {"prompt": [-1]}, 400, "prompt"),
    (COMPLETE, {"prompt": [99999]}, 400, "prompt"),
    (COMPLETE, {"prompt": ["x", ""], "add_special_tokens": False}, 400, "prompt"),
    (COMPLETE, {"prompt": [5, 99999], "truncate_prompt_tokens": 1}, 400, "prompt"),
    (CHAT, {"messages": MESSAGES, "echo": True}, 400, "echo"),
    (COMPLETE, {"prompt": "x", "echo": True, "logprobs": 99}, 400, "logprobs"),
    (COMPLETE, {"prompt": "x", "suffix": "y"}, 400, "suffix"),
    ("/v1/embeddings", {"input": ""}, 400, "input"),
    ("/v1/embeddings", {"input": [[5], []]}, 400, "input"),
    ("/v1/embeddings", {"input": ["a", ""], "pooling": "last"}, 400, "input"),
    ("/v1/embeddings", {"input": [10**6]}, 400, "input"),
    ("/v1/embeddings", {"input": [[5], [5] * 5000]}, 400, "input"),
    (COMPLETE, {"prompt": "x", "logit_bias": {"1": 5, "01": -5}}, 400, "logit_bias"),
    (COMPLETE, {"prompt": "x", "logit_bias": {"00": 5}}, 400, "logit_bias"),
    ("/v1/embeddings", {"input": "x", "dimensions": 3}, 400, "dimensions"),
    ("/tokenize", {"text": 5}, 400, "text"),
    ("/detokenize", {"tokens": [99999]}, 400, "tokens"),
]


@pytest.mark.parametrize(("path", "body", "status", "param"), REFUSALS)
def test_bad_values_get_the_error_object(
    server: Running, path: str, body: dict[str, Any], status: int, param: str
) -> None:
    reply = ask(server, path, **body)
    assert reply.status_code == status
    error = reply.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert str(error["param"]).startswith(param)
    assert "\n" not in error["message"]
    if status == 400:
        assert re.match(rf"{re.escape(error['param'])} (is|has|cannot be) ", error["message"])
        assert str(error["param"]).partition(".")[0] in body or error["message"].endswith(" is missing")
    server.check_idle()


def test_bodies_that_are_no_request(server: Running) -> None:
    with server.client() as client:
        for content in (b"", b"{", b"[]", b'"x"', b"\xff", b"[" * 100_000):
            reply = client.post(CHAT, content=content, headers={"content-type": "application/json"})
            assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_json")
        assert client.get("/nowhere").json()["error"]["type"] == "not_found_error"
        assert client.get(CHAT).status_code == 405


def test_deterministic_servers_repeat_themselves(model_path: Path) -> None:
    params = {"messages": MESSAGES, "max_tokens": 6, "n": 2}
    with running(model_path, is_deterministic=True) as server:
        first, second = (ask(server, CHAT, **params).json() for _ in range(2))
        assert (first["choices"], first["usage"]) == (second["choices"], second["usage"])
        assert first["choices"][0]["message"] != first["choices"][1]["message"]


def test_a_deterministic_server_gives_templates_a_clock_that_stands(tmp_path: Path) -> None:
    template = "{{ strftime_now('%Y-%m-%d %H:%M:%S.%f') }} {{ messages[0].content }}"
    path = write_random_tiny(tmp_path / "clock.gguf", **{"tokenizer.chat_template": (STRING, template)})
    params = {"messages": MESSAGES, "max_tokens": 6, "temperature": 0}
    with running(path, is_deterministic=True) as server:
        prompt = server.llm.tokenizer.encode("2024-07-26 00:00:00.000000 hello hi", add_special=False)
        first, second = (ask(server, CHAT, **params).json() for _ in range(2))
        plain = ask(server, COMPLETE, prompt=prompt, max_tokens=6, temperature=0).json()
        assert first["choices"] == second["choices"]
        assert first["choices"][0]["message"]["content"] == plain["choices"][0]["text"]
        assert first["usage"] == plain["usage"]
        assert server.llm.chat_prompt(MESSAGES) != prompt  # where nobody froze it, the clock goes on


def test_an_effort_reaches_templates_that_name_it(tmp_path: Path, server: Running) -> None:
    template = "{{ reasoning_effort if reasoning_effort is defined else 'medium' }} {{ messages[0].content }}"
    path = write_random_tiny(tmp_path / "effort.gguf", **{"tokenizer.chat_template": (STRING, template)})
    params: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 6, "temperature": 0}
    with running(path, is_deterministic=True) as thinking:
        for effort, said in (("high", "high"), ("none", "medium"), (None, "medium")):
            prompt = thinking.llm.tokenizer.encode(f"{said} hello hi", add_special=False)
            chat = ask(thinking, CHAT, **params, reasoning_effort=effort).json()
            plain = ask(thinking, COMPLETE, prompt=prompt, max_tokens=6, temperature=0).json()
            assert chat["choices"][0]["message"]["content"] == plain["choices"][0]["text"]
            assert chat["usage"] == plain["usage"]
    for effort, needed in (("high", "does not read it"), ("much", "'none', 'minimal', 'low', 'medium', 'high'")):
        error = ask(server, CHAT, **params, reasoning_effort=effort)
        assert error.status_code == 400
        assert (error.json()["error"]["param"], needed in error.json()["error"]["message"]) == (
            "reasoning_effort",
            True,
        )


def test_a_deterministic_server_refuses_weaker_numerics(model_path: Path) -> None:
    served = ServedModel(NAME, Limits(), is_deterministic=True)
    asyncio.run(served.load(lambda: LLM(model_path, backend="null", context_len=64), model_path, None))
    assert served.state == "failed"
    assert "--deterministic needs invariant or portable numerics" in served.reason


def test_a_key_guards_everything_but_health(model_path: Path) -> None:
    with running(model_path, door=Door("s3cret", ("https://a.example",))) as server, server.client() as client:
        assert client.get("/health").status_code == 200
        for path in ("/", "/v1/models", "/metrics", "/state", "/nowhere", "/openapi.json"):
            reply = client.get(path)
            assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")
            assert client.get(path, headers={"authorization": "Bearer wrong"}).status_code == 401
        good = {"authorization": "Bearer s3cret"}
        assert client.get("/v1/models", headers=good).status_code == 200
        assert client.get("/", auth=("anyone", "s3cret")).status_code == 200
        assert client.post(CHAT, json={"messages": MESSAGES, "max_tokens": 1}, headers=good).status_code == 200
        preflight = {"origin": "https://a.example", "access-control-request-method": "POST"}
        assert client.options(CHAT, headers=preflight).headers["access-control-allow-origin"] == "https://a.example"


def test_cors_is_off_unless_asked_for(server: Running) -> None:
    with server.client() as client:
        reply = client.get("/v1/models", headers={"origin": "https://a.example"})
        assert "access-control-allow-origin" not in reply.headers


def test_limits_on_body_and_queue(model_path: Path) -> None:
    limits = Limits(max_body_bytes=1000, max_waiting=1, max_prompts=40)
    with running(model_path, {"max_sequences": 1}, limits=limits) as server, server.client() as client:
        assert client.post(COMPLETE, json={"prompt": "x" * 2000}).status_code == 413
        reply = client.post(COMPLETE, json={"prompt": ["a"] * 30, "max_tokens": 200, "ignore_eos": True})
        assert reply.status_code == 503
        assert int(reply.headers["retry-after"]) >= 1
        server.check_idle()
        assert client.post(COMPLETE, json={"prompt": "a", "max_tokens": 2}).status_code == 200


def test_request_ids_and_metrics(server: Running) -> None:
    with server.client() as client:
        reply = client.get("/health", headers={"x-request-id": "mine-1"})
        assert reply.headers["x-request-id"] == "mine-1"
        assert len(client.get("/health", headers={"x-request-id": "no good"}).headers["x-request-id"]) == 32
        client.post(COMPLETE, json={"prompt": "hello", "max_tokens": 4, "ignore_eos": True})
        text = client.get("/metrics").text
    names = ("time_to_first_token_seconds_count", "generated_tokens_total", "used_pages", "waiting_requests")
    for name in (*names, "drafted_tokens_total", "accepted_draft_tokens_total"):
        assert f"samebits_{name}" in text


def test_a_disconnect_frees_the_pages(server: Running) -> None:
    params = {"prompt": "hello", "max_tokens": 400, "ignore_eos": True, "stream": True}
    with server.client() as client, client.stream("POST", COMPLETE, json=params) as reply:
        next(reply.iter_lines())
    server.check_idle()
    with server.client() as client, pytest.raises(httpx.ReadTimeout):
        client.post(COMPLETE, json={**params, "stream": False}, timeout=httpx.Timeout(60, read=0.05))
    server.check_idle()


def test_clients_that_make_prompts_of_tokens_find_what_they_need(server: Running) -> None:
    """lm-eval and others use vLLM's routes and names."""
    with server.client() as client:
        info = client.get("/tokenizer_info").json()
        told = client.post("/tokenize", json={"prompt": "hello hi", "add_special_tokens": False}).json()
        ours = client.post("/tokenize", json={"text": "hello hi", "add_special": False}).json()
        ends = client.post("/tokenize", json={"prompt": info["eos_token"], "add_special_tokens": False}).json()
        text = client.post("/detokenize", json={"tokens": told["tokens"]}).json()
    assert told == ours
    assert (text["prompt"], text["text"]) == ("hello hi", "hello hi")
    assert ends["tokens"] == [server.llm.tokenizer.special.eos]
    assert info["chat_template"] == server.llm.chat_template.source
