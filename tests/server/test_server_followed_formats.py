"""A format that compiles but cannot be followed within the bounds is the client's mistake, named with the limit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hostile_formats import regex_format
from live_server import Running
from relayed import relayed

from samebits.engine.job import RequestFailed
from samebits.engine.request_options import RequestOptions
from samebits.engine.sampling import SamplingParams
from samebits.receipts.record import Grammar
from samebits.server.http.errors import from_exception

CHAT = "/v1/chat/completions"
ALTERNATIVES = "start: " + " | ".join(f'"a{i}"' for i in range(5000))
RULES = "\n".join(["start: " + " | ".join(f'"a" x{i}' for i in range(3000)), *(f'x{i}: "b"' for i in range(3000))])
REPEATS = "(a?){3000}a{3000}"
FORMATS: dict[str, tuple[dict[str, Any], str]] = {
    "alternatives": ({"type": "grammar", "grammar": ALTERNATIVES}, "max is 2000"),
    "in GBNF": ({"type": "grammar", "grammar": ALTERNATIVES.replace("start:", "root ::=")}, "max is 2000"),
    "rules": ({"type": "grammar", "grammar": RULES}, "max is 2000"),
    "repeats": (regex_format(REPEATS), "limit for a token: 200000"),
}


def chat(kind: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 40, "response_format": kind, **more}


@pytest.mark.parametrize("name", FORMATS)
def test_a_whole_answer_is_a_bad_request(server: Running, name: str) -> None:
    kind, limit = FORMATS[name]
    with server.client() as client:
        reply = client.post(CHAT, json=chat(kind))
    error = reply.json()["error"]
    assert (reply.status_code, error["type"], error["param"]) == (400, "invalid_request_error", "response_format")
    assert error["message"].startswith("response_format is ")
    assert limit in error["message"]
    assert "\n" not in error["message"]
    server.check_idle()


def test_a_stream_ends_with_the_same_error(server: Running) -> None:
    kind, limit = FORMATS["alternatives"]
    with server.client() as client:
        lines = client.post(CHAT, json=chat(kind, stream=True)).text.splitlines()
    errors = [json.loads(line[6:])["error"] for line in lines if '"error"' in line]
    assert [(e["type"], e["param"]) for e in errors] == [("invalid_request_error", "response_format")]
    assert limit in errors[0]["message"]


def test_completions_refuse_it_too(server: Running) -> None:
    body = {"prompt": "hi", "max_tokens": 40, "structured_outputs": {"regex": REPEATS}}
    with server.client() as client:
        reply = client.post("/v1/completions", json=body)
    assert reply.status_code == 400
    assert "limit for a token" in reply.json()["error"]["message"]


def test_through_a_relay_it_is_the_same(model_path: Path) -> None:
    async def main() -> None:
        async with relayed(model_path) as (engine, turns):
            stream = await engine.generate(
                [5] * 8, SamplingParams(max_tokens=40), RequestOptions(grammar=Grammar("regex", REPEATS))
            )
            with pytest.raises(RequestFailed) as failed:
                async for _ in turns.read(stream):
                    pass
            answer = from_exception(failed.value)
            assert answer.status == 400
            assert "limit for a token" in str(answer)

    asyncio.run(main())


def test_other_failures_stay_the_server_s() -> None:
    assert from_exception(RequestFailed("sample: response_format is late, but must be time")).status == 500
    assert from_exception(RequestFailed("the engine stopped")).status == 500
