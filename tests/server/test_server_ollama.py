"""Ollama's routes with its own client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from live_server import NAME, Running

ollama = pytest.importorskip("ollama", reason="needs pip install 'samebits[dev]'")

HELLO = [{"role": "user", "content": "hello hi"}]
GREEDY = {"temperature": 0, "num_predict": 6, "seed": 1, "ignore_eos": True}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "the sky",
        "parameters": {"type": "object", "properties": {"sky": {"type": "string"}}, "required": ["sky"]},
    },
}


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[Any]:
    made = ollama.Client(host=server.url)
    yield made
    made._client.close()


def posted(server: Running, path: str, **body: Any) -> dict[str, Any]:
    with server.client() as http:
        return dict(http.post(path, json=body).json())


def test_chat_is_that_of_chat_completions(client: Any, server: Running) -> None:
    reply = client.chat(model=NAME, messages=HELLO, options=GREEDY)
    wishes = {"temperature": 0, "max_tokens": 6, "seed": 1, "ignore_eos": True}
    plain = posted(server, "/v1/chat/completions", messages=HELLO, **wishes)
    assert reply.message.content == plain["choices"][0]["message"]["content"]
    assert (reply.done, reply.done_reason, reply.eval_count) == (True, "length", 6)
    assert reply.prompt_eval_count == plain["usage"]["prompt_tokens"]
    assert reply.total_duration >= reply.eval_duration > 0


def test_a_stream_is_the_whole_answer_in_lines(client: Any) -> None:
    whole = client.chat(model=f"{NAME}:latest", messages=HELLO, options=GREEDY)
    parts = list(client.chat(model=NAME, messages=HELLO, options=GREEDY, stream=True))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == whole.eval_count
    generated = list(client.generate(model=NAME, prompt="hello hi", options=GREEDY, stream=True))
    assert "".join(part.response for part in generated) == whole.message.content


def test_generate_goes_through_the_template_unless_it_is_raw(client: Any, server: Running) -> None:
    reply = client.generate(model=NAME, prompt="hello hi", system="be brief", options=GREEDY)
    told = [{"role": "system", "content": "be brief"}, *HELLO]
    assert reply.response == client.chat(model=NAME, messages=told, options=GREEDY).message.content
    raw = client.generate(model=NAME, prompt="hello hi", raw=True, options=GREEDY)
    wishes = {"temperature": 0, "max_tokens": 6, "seed": 1, "ignore_eos": True}
    assert raw.response == posted(server, "/v1/completions", prompt="hello hi", **wishes)["choices"][0]["text"]


def test_streaming_is_the_default(server: Running) -> None:
    with server.client() as http:
        reply = http.post("/api/chat", json={"model": NAME, "messages": HELLO, "options": GREEDY})
    assert reply.headers["content-type"] == "application/x-ndjson"
    assert len(reply.text.strip().splitlines()) >= 2


def test_formats_and_log_probabilities(client: Any) -> None:
    options = {"num_predict": 40, "seed": 1}
    assert client.chat(model=NAME, messages=HELLO, format={"enum": [7]}, options=options).message.content == "7"
    text = client.generate(model=NAME, prompt="x", format="json", options=options).response
    assert text.lstrip().startswith("{")
    found = client.chat(model=NAME, messages=HELLO, options=GREEDY, logprobs=True, top_logprobs=2).logprobs
    assert [len(entry.top_logprobs) for entry in found] == [2] * 6


def test_tools_and_their_results(roomy: Running) -> None:
    client = ollama.Client(host=roomy.url)
    options = {"num_predict": 5, "seed": 1}
    called = {"role": "assistant", "tool_calls": [{"function": {"name": "weather", "arguments": {"sky": "blue"}}}]}
    history = [*HELLO, called, {"role": "tool", "tool_name": "weather", "content": "it rains"}]
    for stream in (False, True):
        reply = client.chat(model=NAME, messages=history, tools=[TOOL], options=options, stream=stream)
        assert (list(reply)[-1] if stream else reply).done
    client._client.close()


def test_a_seed_and_a_hash_come_back(server: Running) -> None:
    wishes = {"model": NAME, "messages": HELLO, "stream": False, "logits_sha256": True}
    first = posted(server, "/api/chat", **wishes, options={"num_predict": 5})
    again = posted(server, "/api/chat", **wishes, options={"num_predict": 5, "seed": first["seed"]})
    assert (again["message"], again["logits_sha256"]) == (first["message"], first["logits_sha256"])


def test_looking_around(client: Any) -> None:
    assert [model.model for model in client.list().models] == [NAME]
    assert [model.model for model in client.ps().models] == [NAME]
    shown = client.show(NAME)
    assert "completion" in shown.capabilities
    assert shown.modelinfo["context_length"] == 512


@pytest.mark.parametrize(
    ("wishes", "name"),
    [
        ({"options": {"mirostat": 1}}, "options.mirostat"),
        ({"options": {"mood": 1}}, "options.mood"),
        ({"options": {"stream": True}}, "options.stream"),
        ({"options": {"temperature": "hot"}}, "options.temperature"),
        ({"options": {"num_ctx": 99999}}, "options.num_ctx"),
        ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "messages"),
        ({"think": True}, "think"),
        ({"model": "llama3"}, "model"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(client: Any, wishes: dict[str, Any], name: str) -> None:
    with pytest.raises(ollama.ResponseError) as error:
        client.chat(**{"model": NAME, "messages": HELLO, **wishes})
    assert error.value.error.startswith(name)
    assert error.value.status_code == (404 if name == "model" else 400)


def test_generate_refuses_by_name_too(server: Running) -> None:
    for name, value in {"suffix": "x", "template": "x", "context": [1], "mood": 1}.items():
        reply = posted(server, "/api/generate", model=NAME, prompt="x", **{name: value})
        assert reply["error"].startswith(name)


def test_nothing_to_say_loads_the_model(client: Any) -> None:
    assert client.generate(model=NAME).done_reason == "load"
    assert client.chat(model=NAME, messages=[]).done_reason == "load"
    for ask in (client.generate, lambda **told: client.chat(**told, messages=[])):
        with pytest.raises(ollama.ResponseError) as error:
            ask(model="llama3")
        assert error.value.status_code == 404


def test_what_a_model_can_has_a_route(client: Any, server: Running) -> None:
    routes = {"completion": "/api/generate", "tools": "/api/chat", "thinking": "/api/chat", "embedding": "/api/embed"}
    with server.client() as http:
        for capability in client.show(NAME).capabilities:
            assert http.post(routes[capability], json={"model": NAME}).status_code != 404
