"""A stream brings what the whole answer has, in every protocol and for drawn requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from drawn_requests import DrawnRequest, drawn_requests
from gguf_writer import STRING
from hypothesis import HealthCheck, given, settings
from live_server import NAME, Running, running
from random_tiny import write_random_tiny
from wire_forms import PROTOCOLS, Answer

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}<assistant>{# <think> </think> #}"
)
DRAWN = settings(max_examples=15, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The tiny model, which may reason and call."""
    path = tmp_path_factory.mktemp("scripted") / "scripted.gguf"
    model = write_random_tiny(path, **{"tokenizer.chat_template": (STRING, TEMPLATE)})
    with running(model, {"context_len": 2048}) as it:
        yield it


def test_a_stream_brings_what_the_whole_answer_has(server: Running) -> None:
    """The requests of all protocols run at once, because a step for all of them takes little longer than for one."""
    with ThreadPoolExecutor(2 * len(PROTOCOLS)) as pool, server.client() as client:

        def ask(name: str, request: DrawnRequest, is_stream: bool) -> list[Answer]:
            protocol = PROTOCOLS[name]
            body = protocol.body(request, server.llm.tokenizer)
            reply = client.post(protocol.path, json={"model": NAME, **body, "stream": is_stream})
            assert reply.status_code == 200, reply.text
            return protocol.streamed(reply.text) if is_stream else protocol.whole(reply.json())

        @DRAWN
        @given(drawn_requests())
        def check(request: DrawnRequest) -> None:
            asked = {name: [pool.submit(ask, name, request, stream) for stream in (False, True)] for name in PROTOCOLS}
            for name, (whole, streamed) in asked.items():
                answers = whole.result()
                assert streamed.result() == answers, name
                for answer in answers:
                    check_answer(request, answer)

        check()


def check_answer(request: DrawnRequest, answer: Answer) -> None:
    """Check what holds for any answer."""
    assert answer.usage["total_tokens"] == answer.usage["prompt_tokens"] + answer.usage["completion_tokens"]
    num_tokens = answer.usage["completion_tokens"] if answer.token_ids is None else len(answer.token_ids)
    assert num_tokens <= request.max_tokens
    if answer.logprobs is not None and not answer.has_text_logprobs_only:
        assert len(answer.logprobs) == num_tokens
    if request.stop or request.stop_byte is not None:
        return
    for (token, *_), offset in zip(answer.logprobs or (), answer.offsets, strict=False):
        assert token.startswith(("bytes:", "<|")) or answer.text[offset:].startswith(token)
    if request.shows_special:
        return
    if answer.has_text_logprobs_only and answer.blocks:
        spelled = b"".join(bytes(data) for token, data, *_ in answer.logprobs or () if not token.startswith("<|"))
        assert "".join(spelled.decode("utf-8", "replace").split()) == "".join(answer.text.split())
    if request.script is not None and num_tokens < request.max_tokens and answer.shows_reasoning:
        thought, _, rest = request.script.rpartition("</think>\n")
        assert answer.reasoning == thought.removeprefix("<think>").rstrip()
        if not request.has_tools:
            assert answer.text == (rest.lstrip() if thought else rest)


TOP = 5
ASKED: dict[str, Any] = {"return_token_ids": True, "logits_sha256": True}
ASKED |= {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
EMOJI = "é😀 hello 👩‍🚀€"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("echo", [False, True])
def test_offsets_find_tokens_behind_characters_of_several(server: Running, echo: bool, stream: bool) -> None:
    """`text_offset` counts characters of the text, whatever its tokens are parts of."""
    protocol, pattern = PROTOCOLS["completions"], re.escape(EMOJI).replace("\\ ", " ")
    body = {
        "prompt": "👩‍🚀 ok é",
        "echo": echo,
        "regex": pattern,
        "max_tokens": 60,
        "logprobs": TOP,
        "seed": 1,
        **ASKED,
    }
    with server.client() as client:
        reply = client.post(protocol.path, json={**body, "stream": stream})
        (answer,) = protocol.streamed(reply.text) if stream else protocol.whole(reply.json())
    assert answer.text.endswith(EMOJI)
    assert answer.text.startswith("👩‍🚀 ok é") is echo
    names = [entry[0] for entry in answer.logprobs or ()]
    data = [spelled_bytes(name) for name in names if not name.startswith("<|")]
    assert b"".join(data).decode() == answer.text
    taken, ends = b"", []
    for part in data:
        ends.append(len(taken.decode("utf-8", "ignore")))
        taken += part
    assert answer.offsets[: len(data)] == ends
    assert all(len(top) == TOP for _, logprob, top in answer.logprobs or () if logprob is not None)


def spelled_bytes(name: str) -> bytes:
    """The bytes of a token as OpenAI's completions name it."""
    if not name.startswith("bytes:"):
        return name.encode()
    return name.removeprefix("bytes:").encode().decode("unicode_escape").encode("latin-1")
