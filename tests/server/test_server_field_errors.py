"""Wrong values of every field of every route are refused in our words, which name the field; none are pydantic's."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hostile_bodies import CHAT, COMPLETE, EMBED, GENERATE, HELLO, MESSAGE, OLLAMA, RESPOND
from live_server import Running
from pydantic import ValidationError

from samebits.server.bodies.base import Body
from samebits.server.bodies.fields import refused_by
from samebits.server.bodies.openai import ChatBody, CompletionBody, DetokenizeBody, EmbeddingBody, TokenizeBody
from samebits.server.bodies.reading import checked_body
from samebits.server.http.errors import ApiError, from_exception
from samebits.server.http.field_errors import NEEDED
from samebits.server.protocols.messages_body import MessagesBody
from samebits.server.protocols.ollama_body import OllamaChatBody, OllamaGenerateBody, Options
from samebits.server.protocols.responses_body import ResponsesBody

ROUTES: dict[str, tuple[type[Body], dict[str, Any]]] = {
    CHAT: (ChatBody, {"messages": HELLO, "max_tokens": 1}),
    COMPLETE: (CompletionBody, {"prompt": "hi", "max_tokens": 1}),
    EMBED: (EmbeddingBody, {"input": "hi"}),
    RESPOND: (ResponsesBody, {"input": "hi", "max_output_tokens": 1}),
    MESSAGE: (MessagesBody, {"messages": HELLO, "max_tokens": 1}),
    OLLAMA: (OllamaChatBody, {"messages": HELLO, "options": {"num_predict": 1}, "stream": False}),
    GENERATE: (OllamaGenerateBody, {"prompt": "hi", "options": {"num_predict": 1}, "stream": False}),
    "/tokenize": (TokenizeBody, {"text": "hi"}),
    "/detokenize": (DetokenizeBody, {"tokens": [1]}),
}
TOOL = {"type": "function", "function": {"name": "!"}}
WRONG: list[Any] = [
    *(1.5, -7, 10**30, "", "?", "x" * 70_000, [], {}, [1.5], [""], [{}], {"?": {}}, {"type": "x"}, [TOOL]),
    *([{"role": "x"}], [{"role": "user", "content": [{"type": "x"}]}], {"type": "text", "x": 1}, [["a"]]),
]
PYDANTIC = re.compile(
    r"[Ii]nput should|should be|valid (string|integer|number|list|dict|bool)|permitted|Field required|validation|"
    r"Value error|another value|: got |; needs "
)
SENTENCE = re.compile(r" (is|has|are|must|cannot|takes|needs|does) | missing$")


def message_of(reply: Any) -> str:
    error = reply.json()["error"]
    return error if isinstance(error, str) else error["message"]


def refusal_of(kind: type[Body], body: dict[str, Any]) -> ApiError | None:
    """Return why a body is refused as it is read, or None: other bodies would be answered, which takes long."""
    try:
        checked_body(json.dumps(body).encode(), kind)
    except (ApiError, ValidationError) as error:
        return from_exception(error)
    return None


@pytest.mark.parametrize("path", list(ROUTES))
def test_no_wrong_value_is_answered_in_pydantic_s_words(server: Running, path: str) -> None:
    kind, body = ROUTES[path]
    bodies = [{**body, names[0]: wrong} for names in kind.names().values() for wrong in WRONG]
    if path in (OLLAMA, GENERATE):
        bodies += [{**body, "options": {names[0]: wrong}} for names in Options.names().values() for wrong in WRONG]
    bodies += [{name: value for name, value in body.items() if name != left_out} for left_out in body]
    refused = {str(error): (error.param, given) for given in bodies if (error := refusal_of(kind, given))}
    assert not [message for message in refused if PYDANTIC.search(message)]
    assert not [message for message in refused if not SENTENCE.search(message) or "\n" in message]
    one_of_each_field = {param: (message, given) for message, (param, given) in refused.items()}
    with server.client() as client:
        for message, given in one_of_each_field.values():
            reply = client.post(path, json=given)
            assert (reply.status_code, message_of(reply)) == (400, message)


@pytest.mark.parametrize("path", [CHAT, COMPLETE, EMBED, RESPOND, MESSAGE, GENERATE])
def test_a_refused_field_is_not_supported(server: Running, path: str) -> None:
    kind, body = ROUTES[path]
    with server.client() as client:
        for name in refused_by(kind):
            reply = client.post(path, json={**body, name: {"?": 1}})
            assert (reply.status_code, message_of(reply).startswith(f"{name} is not supported: ")) == (400, True), name


def test_store_is_not_supported(server: Running) -> None:
    with server.client() as client:
        message = message_of(client.post(CHAT, json={"messages": HELLO, "store": True}))
    assert message == "store is not supported: it asks for answers that are kept; only false is accepted"


RANGES = [
    (COMPLETE, {"top_p": 0}, "top_p is 0, but must be more than 0 and at most 1"),
    (COMPLETE, {"repetition_penalty": 0}, "repetition_penalty is 0, but must be from 0.001 to 10"),
    (COMPLETE, {"repeat_penalty": 1e-4}, "repeat_penalty is 0.0001, but must be from 0.001 to 10"),
    (COMPLETE, {"stop": "x" * 2000}, "stop has 2000 characters, but must have at most 1024"),
    (MESSAGE, {"max_tokens": -1}, "max_tokens is -1, but must be from 0 to 1048575"),
    (MESSAGE, {"n": 2}, "n is 2, but must be 1"),
    (OLLAMA, {"options": {"temperature": 3}}, "options.temperature is 3, but must be from 0 to 2"),
    (GENERATE, {"options": {"num_predict": -3}}, "options.num_predict is -3, but must be from -2 to 1048575"),
    (
        OLLAMA,
        {"options": {"num_predict": 1, "max_tokens": 2}},
        "max_tokens and num_predict are both given: give one of them: they are names of one field",
    ),
]


@pytest.mark.parametrize(("path", "wrong", "message"), RANGES, ids=[row[2][:50] for row in RANGES])
def test_a_sentence_states_the_whole_range_of_the_field(path: str, wrong: dict[str, Any], message: str) -> None:
    kind, body = ROUTES[path]
    assert str(refusal_of(kind, {**body, **wrong})) == message


@pytest.mark.parametrize("value", [-1, 2.5])
def test_a_range_is_stated_whole(server: Running, value: float) -> None:
    with server.client() as client:
        message = message_of(client.post(CHAT, json={"messages": HELLO, "temperature": value}))
    assert message == f"temperature is {value}, but must be from 0 to 2"


def test_a_field_nobody_knows_is_named(server: Running) -> None:
    with server.client() as client:
        message = message_of(client.post(CHAT, json={"messages": HELLO, "colour": 1}))
    assert message.startswith("colour is not a field that this server knows")


def test_every_kind_of_refusal_is_ours() -> None:
    assert not [needed for needed in NEEDED.values() if PYDANTIC.search(needed)]
