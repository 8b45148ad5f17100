"""Who may come in, and what an answer or a log line may say: keys, hosts, origins, types, paths, escapes."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gguf_writer import STRING
from hypothesis import given, settings
from hypothesis import strategies as st
from live_server import NAME, Running, free_port, running
from random_tiny import write_random_tiny
from test_server_process import process

from samebits.cli.main import main
from samebits.core.errors import BadInput
from samebits.core.printable import printable
from samebits.server.http.security import Door
from samebits.server.logs import LineFormatter

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hello hi"}], "max_tokens": 1}
DOCS = Path(__file__).parents[2] / "docs" / "serve.md"


def test_an_empty_variable_is_no_key(
    model_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAMEBITS_API_KEY", "")
    monkeypatch.setattr(sys, "argv", ["samebits", "serve", "--model", str(model_path), "--port", "0"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: --api-key is missing: it must be a key; is its variable set?\n"


def test_a_door_without_a_key_is_never_open_to_others(
    model_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["samebits", "serve", "--model", str(model_path), "--host", "0.0.0.0"])
    monkeypatch.setattr(socket.socket, "bind", lambda *_: pytest.fail("it listened"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said == "error: --api-key is missing: it must be a key, to listen on 0.0.0.0\n"


def test_the_guides_line_does_not_open_the_server_when_its_variable_is_not_set() -> None:
    (line,) = [text for text in DOCS.read_text().splitlines() if "--api-key" in text and text.startswith("samebits")]
    call = f"{sys.executable} -m samebits {line.partition('#')[0].removeprefix('samebits')}"
    env = {name: value for name, value in os.environ.items() if name != "KEY"}
    done = subprocess.run(["sh", "-c", call], capture_output=True, text=True, timeout=60, env=env)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--api-key is missing" in done.stderr


@pytest.mark.parametrize("key", ["", "  ", "\t\n", " x", "x\n", "sch\u00fcssel", "a\x1bb"])
def test_keys_that_no_request_could_carry(key: str) -> None:
    with pytest.raises(BadInput, match="--api-key"):
        Door(key)


OWN = ("localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:9", "[::1]", "[::1]:8000")
OTHERS = (
    "evil.example",
    "evil.example:8000",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "localhost:8000@evil",
)
OTHERS += ("10.0.0.1", "[::2]", "", "localhost,evil.example", "::1", "localhost:", "0")


def test_a_keyless_server_answers_under_its_own_names_only(server: Running) -> None:
    with server.client() as client:
        for path in ("/health", "/v1/models", "/", "/state"):
            for host in OWN:
                assert client.get(path, headers={"host": host}).status_code == 200
            for host in OTHERS:
                reply = client.get(path, headers={"host": host})
                assert (reply.status_code, reply.json()["error"]["code"]) == (403, "wrong_host")


def test_the_bound_address_is_a_name_of_its_own(model_path: Path) -> None:
    with running(model_path, host="127.0.0.7") as server, server.client() as client:
        assert client.get("/v1/models").status_code == 200
        assert client.get("/v1/models", headers={"host": "127.0.0.8"}).status_code == 403


def test_pages_of_other_sites_are_sent_away(server: Running) -> None:
    own = server.url.removeprefix("http://")
    with server.client() as client:
        for origin in (f"http://{own}", f"https://{own}"):
            assert client.post(CHAT, json=BODY, headers={"origin": origin}).status_code == 200
        for origin in ("https://evil.example", "null", "http://localhost:1", f"http://{own}.evil.example", ""):
            reply = client.post(CHAT, json=BODY, headers={"origin": origin})
            assert (reply.status_code, reply.json()["error"]["code"]) == (403, "wrong_origin")
        sandboxed = client.post(CHAT, json=BODY, headers={"origin": "null"}).json()["error"]["message"]
        assert sandboxed == "origin is 'null', but must be a site that --cors-origin names"
        twice = [("origin", f"http://{own}"), ("origin", "https://evil.example")]
        assert client.post(CHAT, json=BODY, headers=twice).status_code == 403


def test_origins_that_were_named_may_call(model_path: Path) -> None:
    site = "https://a.example"
    with running(model_path, door=Door(None, (site,))) as server, server.client() as client:
        reply = client.post(CHAT, json=BODY, headers={"origin": site})
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, site)
        assert client.post(CHAT, json=BODY, headers={"origin": "https://b.example"}).status_code == 403
        assert client.post(CHAT, json=BODY, headers={"origin": site, "host": "a.example"}).status_code == 403


JSON_TYPES = ("application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8")
OTHER_TYPES = ("text/plain", "text/plain;application/json", "multipart/form-data", "text/json", "application/jsonp")
OTHER_TYPES += ("application/json, text/plain", "application/x-www-form-urlencoded, text/plain")
PROGRAM_TYPES = ("", "application/x-www-form-urlencoded", "application/octet-stream")  # with no type, curl, aiohttp


def test_bodies_are_json_by_their_type(server: Running) -> None:
    """The other types are those that a page of any site may send without the server's permission."""
    data = json.dumps(BODY)
    with server.client() as client:
        for kind in JSON_TYPES:
            assert client.post(CHAT, content=data, headers={"content-type": kind}).status_code == 200
        for kind in OTHER_TYPES:
            reply = client.post(CHAT, content=data, headers={"content-type": kind})
            assert (reply.status_code, reply.json()["error"]["code"]) == (415, "wrong_content_type")
        both = [("content-type", "application/json"), ("content-type", "text/plain")]
        assert client.post(CHAT, content=data, headers=both).status_code == 415


@pytest.mark.parametrize("kind", [None, *PROGRAM_TYPES])
def test_programs_need_no_content_type_and_browsers_do(server: Running, kind: str | None) -> None:
    """Browsers add headers of their own to what a page sends; a program that sends none of them is no browser."""
    own, data = server.url, json.dumps(BODY)
    typed = {} if kind is None else {"content-type": kind}
    browsers = ({"origin": own}, {"referer": f"{own}/x"}, {"sec-fetch-site": "same-origin"}, {"Sec-Fetch-Mode": "cors"})
    with server.client() as client:
        assert client.post(CHAT, content=data, headers=typed).status_code == 200
        refused = client.post(CHAT, content="not JSON", headers=typed)
        assert (refused.status_code, "JSON" in refused.text) == (400, True)
        for added in browsers:
            reply = client.post(CHAT, content=data, headers={**typed, **added})
            assert (reply.status_code, reply.json()["error"]["code"]) == (415, "wrong_content_type")
            assert client.post(CHAT, json=BODY, headers=added).status_code == 200


def test_with_a_key_any_host_may_be_named(model_path: Path) -> None:
    good = {"authorization": "Bearer s3cret", "host": "models.example", "origin": "https://models.example"}
    with running(model_path, door=Door("s3cret")) as server, server.client() as client:
        assert client.get("/v1/models", headers=good).status_code == 200
        assert client.post(CHAT, json=BODY, headers=good).status_code == 200
        plain = client.post(CHAT, content=json.dumps(BODY), headers={**good, "content-type": "text/plain"})
        assert plain.status_code == 415


TELLING = "folder-that-nobody-may-know"
REFUSING = "{% if messages[0].content == 'no' %}{{ raise_exception('not this') }}{% endif %}{{ messages[7].content }}"


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for models whose name shows in any message that holds their path."""
    folder = tmp_path_factory.mktemp("models") / TELLING
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def refusing(telling: Path) -> Iterator[Running]:
    """A server whose model's template fails on every conversation."""
    path = write_random_tiny(telling / "m.gguf", **{"tokenizer.chat_template": (STRING, REFUSING)})
    with running(path, {"context_len": 64}) as it:
        yield it


def check_no_paths(reply: httpx.Response, folder: Path) -> None:
    whole = reply.text + repr(reply.headers)
    for secret in (TELLING, str(folder.parent), "site-packages", "/home/", "/usr/", ".py"):
        assert secret not in whole, reply.text


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
FIELDS = ("messages", "prompt", "input", "text", "tokens", "model", "stop", "logit_bias", "response_format")
PATHS = (CHAT, "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize", "/v1/models/x", "/nowhere")
PATHS += ("/v1/responses", "/v1/messages", "/v1/rerank", "/api/chat", "/api/generate", "/api/show")


@settings(max_examples=25, deadline=None)
@given(path=st.sampled_from(PATHS), body=st.dictionaries(st.sampled_from(FIELDS), values, max_size=4))
def test_no_error_names_a_path_of_the_server(refusing: Running, telling: Path, path: str, body: dict[str, Any]) -> None:
    with refusing.client() as client:
        data = json.dumps({"max_tokens": 1, **body}).encode()
        reply = client.post(path, content=data, headers={"content-type": "application/json"})
        check_no_paths(reply, telling)


def test_template_errors_name_no_path_and_the_log_does(
    refusing: Running, telling: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="samebits.server")
    with refusing.client() as client:
        for content, expected in (("no", "it refuses: not this"), ("x", "UndefinedError")):
            reply = client.post(CHAT, json={"messages": [{"role": "user", "content": content}]})
            assert (reply.status_code, expected in reply.text) == (400, True)
            check_no_paths(reply, telling)
    assert TELLING in caplog.text


def test_a_load_failure_names_no_path_and_the_log_does(telling: Path) -> None:
    """With --verbose, whose lines must hold whatever paths are asked for."""
    broken, port = telling / "broken.gguf", free_port()
    broken.write_bytes(b"GGUF nonsense")
    hostile = "/%1b%5b2J%0d%0aforged%20line%E2%80%AE%C2%9b%00%7f"
    with process("--model", str(broken), "--port", str(port), "--verbose", "--stay") as server:
        url, reason = f"http://127.0.0.1:{port}", "the model is loading"
        while reason == "the model is loading":
            try:
                health = httpx.get(f"{url}/health", verify=False)
                reason = health.json()["reason"]
            except httpx.TransportError:
                assert server.poll() is None
                time.sleep(0.05)
        replies = [health] + [httpx.post(f"{url}{path}", json={}, verify=False) for path in PATHS]
        replies += [
            httpx.get(f"{url}{path}", verify=False) for path in ("/", "/state", "/v1/models", "/metrics", hostile)
        ]
        server.terminate()
        _, log = server.communicate(timeout=30)
    assert reason == "the model cannot be loaded (BadInput); the server's log says why"
    assert {r.status_code for r in replies[:6]} == {503}
    assert all("retry-after" in r.headers for r in replies[1:6])
    for reply in replies:
        check_no_paths(reply, telling)
    assert str(broken) in log
    assert "\\r\\nforged line" in log
    assert all(line.isprintable() for line in log.split("\n"))


def test_faults_name_no_path_and_the_log_does(
    model_path: Path, telling: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In a step, in a handler, and then in the engine's own thread."""

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error", str(telling / "m.gguf"))

    with running(model_path) as server, server.client() as client:
        server.llm.tokenizer.encode = fail  # type: ignore[method-assign, assignment]
        replies = [client.post("/tokenize", json={"text": "x"}), client.post(CHAT, json=BODY)]
        assert {r.status_code for r in replies} == {500}
        server.llm.engine.step = fail  # type: ignore[method-assign, assignment]
        for stream in (False, True):
            replies.append(client.post("/v1/completions", json={"prompt": [5, 6], "max_tokens": 2, "stream": stream}))
        replies.append(client.get("/health"))
        assert (replies[-1].status_code, "OSError" in replies[-1].json()["reason"]) == (503, True)
    for reply in replies:
        check_no_paths(reply, telling)
    assert TELLING in caplog.text


@given(st.text(), st.text())
def test_a_log_record_is_one_line(text: str, fault: str) -> None:
    assert printable(text, None).isprintable()
    assert printable(printable(text, None), None) == printable(text, None)
    record = logging.LogRecord("n", logging.INFO, "f", 1, "%s said", (text,), None)
    formatter = LineFormatter("%(name)s %(message)s")
    assert formatter.format(record).isprintable()
    try:
        raise ValueError(fault)
    except ValueError:
        record = logging.LogRecord("n", logging.ERROR, "f", 1, "%s said", (text,), sys.exc_info())
    first, *rest = formatter.format(record).split("\n")
    assert all(line.isprintable() for line in (first, *rest))
    assert all(line.startswith("    ") for line in rest)


def test_curl_needs_no_content_type(server: Running) -> None:
    """Ollama's documentation calls its routes like this; curl then declares the body to be a form."""
    call = ["curl", "-s", f"{server.url}{CHAT}", "-d", json.dumps({"model": NAME, **BODY})]
    for added in ([], ["-H", "content-type: application/json"], ["-H", "content-type:"]):
        try:
            done = subprocess.run([*call, *added], capture_output=True, timeout=30)
        except FileNotFoundError:
            pytest.skip("no curl here")
        assert json.loads(done.stdout)["object"] == "chat.completion"
    refused = subprocess.run([*call, "-H", "sec-fetch-site: cross-site"], capture_output=True, timeout=30)
    assert "must be application/json" in json.loads(refused.stdout)["error"]["message"]
