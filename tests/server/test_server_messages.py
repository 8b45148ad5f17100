"""/v1/messages with Anthropic's own client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from gguf_writer import STRING
from live_server import NAME, Running, running
from random_tiny import write_random_tiny

from samebits.server.http.security import Door

# Imported where it is used: that takes a second, which each process that collects tests would spend.
pytestmark = pytest.mark.skipif(find_spec("anthropic") is None, reason="needs pip install 'samebits[dev]'")

HELLO = [{"role": "user", "content": "hello hi"}]
TOOL = {
    "name": "weather",
    "description": "the sky",
    "input_schema": {
        "type": "object",
        "properties": {"sky": {"enum": ["blue", "grey"]}},
        "required": ["sky"],
        "additionalProperties": False,
    },
}


@contextmanager
def client_of(server: Running, api_key: str = "none") -> Iterator[Any]:
    import anthropic

    with anthropic.Anthropic(base_url=server.url, api_key=api_key, max_retries=0) as it:
        yield it


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[Any]:
    with client_of(server) as it:
        yield it


@pytest.fixture(scope="module")
def roomy_client(roomy: Running) -> Iterator[Any]:
    with client_of(roomy) as it:
        yield it


@pytest.fixture
def thinking_client(thinking: Running) -> Iterator[Any]:
    with client_of(thinking) as it:
        yield it


def chat(server: Running, messages: list[dict[str, Any]], **wishes: Any) -> str:
    with server.client() as http:
        reply = http.post("/v1/chat/completions", json={"messages": messages, **wishes}).json()
    return str(reply["choices"][0]["message"]["content"])


def test_an_answer_is_that_of_chat(client: Any, server: Running) -> None:
    wishes = {"extra_body": {"temperature": 0.7, "seed": 3, "logits_sha256": True}}
    reply = client.messages.create(model=NAME, system="be brief", messages=HELLO, max_tokens=6, **wishes)
    told = [{"role": "system", "content": "be brief"}, *HELLO]
    assert reply.content[0].text == chat(server, told, temperature=0.7, seed=3, max_tokens=6)
    assert (reply.type, reply.role, reply.model, reply.stop_reason) == ("message", "assistant", NAME, "max_tokens")
    assert reply.usage.output_tokens == 6
    assert reply.model_extra["seed"] == 3
    assert len(reply.model_extra["logits_sha256"]) == 64


def test_a_stream_is_the_whole_answer_in_events(client: Any) -> None:
    wishes = {"model": NAME, "messages": HELLO, "max_tokens": 8, "extra_body": {"seed": 3}}
    whole = client.messages.create(**wishes)
    with client.messages.stream(**wishes) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    assert final.usage.input_tokens == whole.usage.input_tokens


def test_the_string_that_ended_an_answer_is_named(client: Any) -> None:
    wishes = {
        "model": NAME,
        "messages": HELLO,
        "max_tokens": 12,
        "extra_body": {"ignore_eos": True, "seed": 1},
    }
    text = client.messages.create(**wishes).content[0].text
    stop = text[3:5]
    cut = client.messages.create(**wishes, stop_sequences=["~~", stop])
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", stop)
    assert cut.content[0].text == text[: text.find(stop)]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_forced_call_and_its_result(roomy_client: Any, is_streamed: bool) -> None:
    wishes: dict[str, Any] = {"model": NAME, "tools": [TOOL], "max_tokens": 200, "extra_body": {"seed": 1}}
    chosen = {"type": "tool", "name": "weather"}
    if is_streamed:
        with roomy_client.messages.stream(**wishes, messages=HELLO, tool_choice=chosen) as stream:
            reply = stream.get_final_message()
    else:
        reply = roomy_client.messages.create(**wishes, messages=HELLO, tool_choice=chosen)
    (call,) = (block for block in reply.content if block.type == "tool_use")
    assert (call.name, reply.stop_reason) == ("weather", "tool_use")
    assert call.input["sky"] in ("blue", "grey")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "it rains"}]}
    history = [
        *HELLO,
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in reply.content]},
        {"role": "user", "content": [result, {"type": "text", "text": "and now?"}]},
    ]
    wishes["max_tokens"] = 5
    assert (
        roomy_client.messages.create(**wishes, messages=history, tool_choice={"type": "none"}).usage.output_tokens <= 5
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("no such city", "Error: no such city"),
        ([{"type": "text", "text": "a"}], "Error: a"),
        ("", "Error"),
        (None, "Error"),
    ],
)
def test_the_model_is_told_that_a_tool_failed(roomy: Running, content: Any, told: str) -> None:
    use = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"sky": "blue"}}
    result = {"type": "tool_result", "tool_use_id": "t1"} | ({} if content is None else {"content": content})
    begun = [*HELLO, {"role": "assistant", "content": [use]}]
    wishes = {"max_tokens": 2, "seed": 1, "temperature": 0}

    def tokens(**parts: Any) -> int:
        history = [*begun, {"role": "user", "content": [{**result, **parts}]}]
        with roomy.client() as http:
            reply = http.post("/v1/messages", json={"messages": history, **wishes})
        return int(reply.json()["usage"]["input_tokens"])

    assert tokens(is_error=True) == tokens(content=told) > tokens() == tokens(is_error=False)


def test_a_call_that_is_cut_loses_no_text(roomy_client: Any) -> None:
    wishes: dict[str, Any] = {"model": NAME, "tools": [TOOL], "messages": HELLO, "extra_body": {"seed": 1}}
    for max_tokens in (1, 3, 6):
        reply = roomy_client.messages.create(**wishes, max_tokens=max_tokens, tool_choice={"type": "any"})
        assert reply.stop_reason == "max_tokens"
        with roomy_client.messages.stream(**wishes, max_tokens=max_tokens, tool_choice={"type": "any"}) as stream:
            deltas = [e.delta for e in stream if e.type == "content_block_delta"]
        told = "".join(getattr(d, "partial_json", None) or getattr(d, "text", "") for d in deltas)
        assert "".join(getattr(block, "text", "") for block in reply.content) in (told, "")


TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if not loop.last or m.role != 'assistant' %}"
    "</{{ m.role }}>{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant><think>{% endif %}"
)


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Its answers begin in reasoning, which the prompt opens."""
    path = write_random_tiny(
        tmp_path_factory.mktemp("think") / "think.gguf",
        **{"tokenizer.chat_template": (STRING, TEMPLATE + "{# </think> #}")},
    )
    with running(path) as it:
        yield it


def test_reasoning_is_a_block_of_its_own(thinking_client: Any) -> None:
    wishes = {"model": NAME, "messages": HELLO, "max_tokens": 6, "extra_body": {"seed": 1, "ignore_eos": True}}
    reply = thinking_client.messages.create(**wishes)
    assert reply.content[0].type == "thinking"
    with thinking_client.messages.stream(**wishes) as stream:
        kinds = {event.type for event in stream}
        assert stream.get_final_message().content[0].thinking == reply.content[0].thinking
    assert "thinking" in kinds


def test_reasoning_that_cannot_be_turned_off_is_not_turned_off_quietly(client: Any, thinking_client: Any) -> None:
    import anthropic

    wishes: dict[str, Any] = {"model": NAME, "messages": HELLO, "max_tokens": 2, "thinking": {"type": "disabled"}}
    assert client.messages.create(**wishes).role == "assistant"
    with pytest.raises(anthropic.BadRequestError, match="thinking is reasoning turned off"):
        thinking_client.messages.create(**wishes)


def test_the_assistants_last_words_go_on(thinking: Running, thinking_client: Any) -> None:
    begun = [*HELLO, {"role": "assistant", "content": "I say"}]
    reply = thinking_client.messages.create(model=NAME, messages=begun, max_tokens=5)
    ids = thinking.llm.tokenizer.encode("<user>hello hi</user><assistant>I say", add_special=False)
    assert reply.usage.input_tokens == len(ids)


@pytest.mark.parametrize(
    ("wishes", "name"),
    [
        ({"extra_body": {"mood": "x"}}, "mood"),
        ({"extra_body": {"mirostat": 2}}, "mirostat"),
        ({"extra_body": {"thinking": {"type": "enabled", "budget_tokens": 2000}}}, "thinking"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages"),
        ({"messages": []}, "messages"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools"),
        ({"extra_body": {"temperature": 9.0}}, "temperature"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(client: Any, wishes: dict[str, Any], name: str) -> None:
    import anthropic

    with pytest.raises(anthropic.BadRequestError) as error:
        client.messages.create(**{"model": NAME, "messages": HELLO, "max_tokens": 4, **wishes})
    assert error.value.body["type"] == "error"
    assert error.value.body["error"]["type"] == "invalid_request_error"
    assert error.value.body["error"]["message"].startswith(name)


def test_errors_of_other_kinds_and_the_key(model_path: Path) -> None:
    import anthropic

    least = {"messages": HELLO, "max_tokens": 2}
    with running(model_path, door=Door("s3cret")) as server, client_of(server, "s3cret") as good:
        assert good.messages.create(model=NAME, **least).role == "assistant"
        with pytest.raises(anthropic.NotFoundError) as error:
            good.messages.create(model="claude", **least)
        assert error.value.body["error"]["type"] == "not_found_error"
        with client_of(server, "wrong") as bad, pytest.raises(anthropic.AuthenticationError) as refused:
            bad.messages.create(model=NAME, **least)
        assert refused.value.body["error"]["type"] == "authentication_error"
