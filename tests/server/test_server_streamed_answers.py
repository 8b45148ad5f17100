"""A streamed answer says what the whole one says, in every protocol and for drawn requests.

Scripts write an answer token by token with a regular expression, so that reasoning, calls and characters of several
tokens come up; without a script the tiny model draws bytes, most of which are no UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from gguf_writer import STRING
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from live_server import NAME, Running, running
from random_tiny import write_random_tiny
from wire_forms import PROTOCOLS, Said, Wish

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}<assistant>{# <think> </think> #}"
)
CALL = '<tool_call>\n{"name": "weather", "arguments": {"sky": "%s"}}\n</tool_call>'
TEXTS = ("hello ", "é", "😀", "a/b", "日本", "x\n", "👩‍🚀!", "\ufffd")
PARTIAL = tuple("😀é€".encode()) + tuple(b"ab \n")  # bytes that make characters in some orders alone
DRAWN = settings(max_examples=15, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The tiny model, which may reason and call."""
    path = tmp_path_factory.mktemp("scripted") / "scripted.gguf"
    model = write_random_tiny(path, **{"tokenizer.chat_template": (STRING, TEMPLATE)})
    with running(model, {"context_len": 2048}) as it:
        yield it


texts = st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3).map("".join)
calls = st.sampled_from(["blue", "grey", "😀"]).map(lambda sky: CALL % sky)
thoughts = st.one_of(st.just(""), texts.map(lambda text: f"<think>{text}</think>\n"))
scripts = st.builds(lambda thought, rest: thought + "".join(rest), thoughts, st.lists(texts | calls, max_size=3))


@st.composite
def wishes(draw: st.DrawFn) -> Wish:
    script = draw(st.one_of(st.none(), scripts.filter(bool)))
    base = script or "".join(TEXTS)
    start = draw(st.integers(0, len(base) - 1))
    stop = draw(st.one_of(st.none(), st.integers(1, 3).map(lambda count: base[start : start + count])))
    most = len(base.encode()) + 2 if script else 24
    is_forced = script is None and draw(st.booleans())
    return Wish(
        prompt=draw(texts),
        script=script,
        has_tools=script is not None and draw(st.booleans()),
        is_forced=is_forced,
        stop=stop,
        max_tokens=draw(st.one_of(st.just(most), st.integers(1, most))),
        top=draw(st.integers(0, 3)),
        seed=draw(st.integers(0, 1000)),
        allowed=None if script or is_forced else draw(st.one_of(st.none(), st.just(PARTIAL))),
    )


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_stream_says_what_the_whole_answer_says(server: Running, name: str) -> None:
    protocol = PROTOCOLS[name]

    @DRAWN
    @given(wishes())
    def check(wish: Wish) -> None:
        body = protocol.body(wish, server.llm.tokenizer)
        with server.client() as client:
            whole = client.post(protocol.path, json={"model": NAME, **body, "stream": False})
            streamed = client.post(protocol.path, json={"model": NAME, **body, "stream": True})
        assert (whole.status_code, streamed.status_code) == (200, 200), (whole.text, streamed.text)
        said, also_said = protocol.whole(whole.json()), protocol.streamed(streamed.text)
        assert also_said == said
        check_said(wish, said)

    check()


def check_said(wish: Wish, said: Said) -> None:
    """What holds for any answer."""
    assert said.num_tokens <= wish.max_tokens
    if said.logprobs is not None and not said.is_partly_told:
        assert len(said.logprobs) == said.num_tokens
    if not wish.stop:
        for (token, *_), offset in zip(said.logprobs or (), said.offsets, strict=False):
            assert token.startswith(("bytes:", "<|")) or said.text[offset:].startswith(token)
    if said.is_partly_told and said.blocks and not wish.stop:
        told = b"".join(bytes(data) for token, data, *_ in said.logprobs or () if not token.startswith("<|"))
        assert "".join(told.decode("utf-8", "replace").split()) == "".join(said.text.split())
    if wish.script is not None and not wish.stop and said.num_tokens < wish.max_tokens:
        thought, _, rest = wish.script.rpartition("</think>\n")
        assert said.reasoning == thought.removeprefix("<think>").rstrip() or not said.tells_reasoning
        if not wish.has_tools and said.tells_reasoning:
            assert said.text == rest.lstrip() if thought else rest


TOP = 5
EMOJI = "é😀 hello 👩‍🚀€"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("echo", [False, True])
def test_offsets_find_tokens_behind_characters_of_several(server: Running, echo: bool, stream: bool) -> None:
    """`text_offset` counts characters of the text, whatever its tokens are parts of."""
    protocol, pattern = PROTOCOLS["completions"], re.escape(EMOJI).replace("\\ ", " ")
    body = {"prompt": "👩‍🚀 ok é", "echo": echo, "regex": pattern, "max_tokens": 60, "logprobs": TOP, "seed": 1}
    with server.client() as client:
        reply = client.post(protocol.path, json={**body, "stream": stream})
        said = protocol.streamed(reply.text) if stream else protocol.whole(reply.json())
    assert said.text.endswith(EMOJI)
    assert said.text.startswith("👩‍🚀 ok é") is echo
    names = [entry[0] for entry in said.logprobs or ()]
    data = [spelled_bytes(name) for name in names if not name.startswith("<|")]
    assert b"".join(data).decode() == said.text
    taken, ends = b"", []
    for part in data:
        ends.append(len(taken.decode("utf-8", "ignore")))
        taken += part
    assert said.offsets[: len(data)] == ends
    assert all(len(top) == TOP for _, logprob, top in said.logprobs or () if logprob is not None)


def spelled_bytes(name: str) -> bytes:
    """The bytes of a token as OpenAI's completions name it."""
    if not name.startswith("bytes:"):
        return name.encode()
    return name.removeprefix("bytes:").encode().decode("unicode_escape").encode("latin-1")
