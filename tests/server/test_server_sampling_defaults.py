"""Sampling fields that clients leave out, on every protocol: the model's own values, which receipts state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gguf_writer import F32, U32, tiny_model
from live_server import Running, running
from random_tiny import write_random_tiny

from samebits.core.sampling_defaults import NEUTRAL
from samebits.server.limits import CHAT_TOKENS

Json = dict[str, Any]
OWN: Json = {"temperature": 0.75, "top_k": 9, "top_p": 0.9, "min_p": 0.0, "repetition_penalty": 1.25}
KEYS = {"temp": (F32, 0.75), "top_k": (U32, 9), "top_p": (F32, 0.9), "penalty_repeat": (F32, 1.25)}
CONTEXT_LEN, LONG = 256, 8192
HELLO = [{"role": "user", "content": "hello hi"}]
CHAT, COMPLETE, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGES, OLLAMA, OLLAMA_GENERATE = "/v1/messages", "/api/chat", "/api/generate"
BODIES: dict[str, Json] = {
    CHAT: {"messages": HELLO, "max_tokens": 3},
    COMPLETE: {"prompt": "hello hi", "max_tokens": 3},
    RESPONSES: {"input": "hello hi", "max_output_tokens": 3},
    MESSAGES: {"messages": HELLO, "max_tokens": 3},
    OLLAMA: {"messages": HELLO, "stream": False, "options": {"num_predict": 3}},
    OLLAMA_GENERATE: {"prompt": "hello hi", "stream": False, "options": {"num_predict": 3}},
}


@pytest.fixture(scope="module")
def stating_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    metadata = {f"general.sampling.{name}": value for name, value in KEYS.items()}
    return write_random_tiny(tmp_path_factory.mktemp("models") / "stating.gguf", **metadata)


@pytest.fixture(scope="module")
def stating(stating_path: Path) -> Iterator[Running]:
    with running(stating_path, {"context_len": CONTEXT_LEN}) as it:
        yield it


def posted(server: Running, path: str, body: Json) -> Json:
    with server.client() as http:
        reply = http.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def with_options(path: str, body: Json, **stated: Any) -> Json:
    """Return the body with these sampling fields, which Ollama's routes have in `options`."""
    if path.startswith("/api/"):
        return {**body, "options": {**body.get("options", {}), **stated}}
    return {**body, **stated}


def drawn_with(server: Running, path: str, **stated: Any) -> Json:
    """Return the sampling that the receipt of an answer states."""
    reply = posted(server, path, {**with_options(path, BODIES[path], **stated), "receipt": True})
    receipt = reply["choices"][0]["receipt"] if "choices" in reply else reply["receipt"]
    return dict(receipt["sampling"])


@pytest.mark.parametrize("path", BODIES)
def test_fields_that_are_left_out_are_the_models_own(stating: Running, path: str) -> None:
    for stated in ({}, dict.fromkeys(OWN), {"temperature": 0}, {"temperature": 1.5, "top_k": 0, "top_p": 1.0}):
        sampling = drawn_with(stating, path, **stated)
        expected = {**OWN, **{name: value for name, value in stated.items() if value is not None}}
        assert {name: sampling[name] for name in OWN} == expected


@pytest.mark.parametrize("top_k", [0, -1])
def test_an_explicit_value_that_turns_a_filter_off_wins(stating: Running, top_k: int) -> None:
    assert drawn_with(stating, CHAT, top_k=top_k)["top_k"] == 0


def test_left_out_and_stated_values_give_the_same_bits(stating: Running) -> None:
    body = {"messages": HELLO, "max_tokens": 20, "seed": 5, "logits_sha256": True}
    left_out, stated = (posted(stating, CHAT, {**body, **more})["choices"] for more in ({}, OWN))
    assert left_out == stated
    assert left_out != posted(stating, CHAT, {**body, **NEUTRAL.values()})["choices"]


def test_responses_say_what_they_were_drawn_with(stating: Running) -> None:
    reply = posted(stating, RESPONSES, BODIES[RESPONSES])
    assert (reply["temperature"], reply["top_p"]) == (0.75, 0.9)
    assert posted(stating, RESPONSES, {**BODIES[RESPONSES], "temperature": 0})["temperature"] == 0


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "hello hi", "echo": True, "logprobs": 1, "max_tokens": 2},
        {"prompt": "hello hi", "max_tokens": 0, "prompt_logprobs": 1},
        {"prompt": [5, 6, 7], "return_token_ids": True, "logprobs": 1, "max_tokens": 2},
        {"prompt": [[5, 6], [7]], "return_token_ids": True, "max_tokens": 2},
    ],
)
def test_requests_that_measure_the_model_are_neutral(stating: Running, body: Json) -> None:
    def sampling(**more: Any) -> Json:
        receipt = posted(stating, COMPLETE, {**body, "receipt": True, **more})["choices"][0]["receipt"]
        return {name: receipt["sampling"][name] for name in OWN}

    assert sampling() == NEUTRAL.values()
    assert sampling(temperature=0.5, top_k=3) == {**NEUTRAL.values(), "temperature": 0.5, "top_k": 3}


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "hello hi", "return_token_ids": True, "max_tokens": 2},
        {"prompt": [5, 6, 7], "max_tokens": 2},
        {"prompt": "hello hi", "echo": True, "max_tokens": 2},
    ],
)
def test_other_completions_are_not(stating: Running, body: Json) -> None:
    receipt = posted(stating, COMPLETE, {**body, "receipt": True})["choices"][0]["receipt"]
    assert {name: receipt["sampling"][name] for name in OWN} == OWN


def test_log_probabilities_are_the_models_own_whatever_is_drawn_with(stating: Running) -> None:
    """A forced token has the log-probability of the raw logits, at any temperature and with any filter."""
    for stated in ({}, NEUTRAL.values(), {"temperature": 0.3, "top_k": 2, "repetition_penalty": 1.9}):
        body = {"prompt": "hello hi", "max_tokens": 1, "logprobs": 0, "allowed_token_ids": [9], **stated}
        (found,) = posted(stating, COMPLETE, body)["choices"][0]["logprobs"]["token_logprobs"]
        score = stating.llm.encode("hello hi")
        body = {"prompt": [*score, 9], "echo": True, "logprobs": 0, "max_tokens": 0}
        assert found == posted(stating, COMPLETE, body)["choices"][0]["logprobs"]["token_logprobs"][-1]


@pytest.fixture(scope="module")
def long_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tiny_model(**{"llama.context_length": (U32, LONG)}).write(tmp_path_factory.mktemp("models") / "long.gguf")
    with running(path, {"context_len": LONG, "num_pages": LONG // 16 + 2}) as it:
        yield it


@pytest.mark.parametrize("path", [CHAT, RESPONSES, OLLAMA, OLLAMA_GENERATE])
@pytest.mark.parametrize("limit", [None, -1])
def test_an_answer_without_a_stated_limit_is_bounded(long_server: Running, path: str, limit: int | None) -> None:
    """-1 asks for as many as the context holds, where the protocol has it; null is the same as no field."""
    body = {name: value for name, value in BODIES[path].items() if not name.startswith("max_") and name != "options"}
    if path == RESPONSES and limit is not None:
        pytest.skip("OpenAI's Responses have no -1")
    name = {CHAT: "max_tokens", RESPONSES: "max_output_tokens"}.get(path, "num_predict")
    ends = {"stop_token_ids": list(range(long_server.llm.vocab_size))}  # of the first token
    reply = posted(long_server, path, {**with_options(path, body, **{name: limit}, **ends), "receipt": True})
    receipt = reply["choices"][0]["receipt"] if "choices" in reply else reply["receipt"]
    num_left = LONG - len(receipt["prompt_ids"])
    assert receipt["sampling"]["max_tokens"] == (CHAT_TOKENS if limit is None else num_left)
    assert len(receipt["answer"]["token_ids"]) == 1


def test_the_docs_state_the_bound() -> None:
    page = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()
    assert f"{CHAT_TOKENS:,} tokens" in page


def test_a_short_context_bounds_it_further(stating: Running) -> None:
    ends = {"stop_token_ids": list(range(stating.llm.vocab_size))}
    receipt = posted(stating, CHAT, {"messages": HELLO, **ends, "receipt": True})["choices"][0]["receipt"]
    assert receipt["sampling"]["max_tokens"] == CONTEXT_LEN - len(receipt["prompt_ids"])


def test_props_say_what_is_in_force(stating: Running, stating_path: Path) -> None:
    with stating.client() as http:
        props = http.get("/props").json()
    params = props["default_generation_settings"]["params"]
    assert props["sampling_defaults"] == "GGUF metadata"
    assert params == {**OWN, "repeat_penalty": 1.25, "max_tokens": CONTEXT_LEN}
    with running(stating_path, {"context_len": CONTEXT_LEN, "sampling_defaults": "neutral"}) as neutral:
        with neutral.client() as http:
            props = http.get("/props").json()
        assert props["sampling_defaults"] == "neutral"
        sampling = drawn_with(neutral, CHAT)
    assert {name: sampling[name] for name in OWN} == NEUTRAL.values()
    assert {name: props["default_generation_settings"]["params"][name] for name in OWN} == NEUTRAL.values()
