"""Receipts over HTTP: on every protocol, whole and streamed, they replay on another backend; kept ones are bounded."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import Running, running
from test_server_tools import WEATHER

from samebits import LLM
from samebits.core.errors import BadInput
from samebits.receipts.record import Receipt, from_json
from samebits.receipts.signing import read_private_key
from samebits.server import receipts as desk_module
from samebits.server.limits import Limits
from samebits.server.receipts import ReceiptDesk

HELLO = [{"role": "user", "content": "hello hi"}]
KEPT_SECONDS = 600.0


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key, folder = Ed25519PrivateKey.generate(), tmp_path_factory.mktemp("keys")
    private, public = folder / "key.pem", folder / "public.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.fixture(scope="module")
def keeping(model_path: Path, keys: tuple[Path, Path]) -> Iterator[Running]:
    """A server that signs receipts and keeps those of all answers."""
    desk = ReceiptDesk(read_private_key(keys[0]), KEPT_SECONDS)
    with running(model_path, {"context_len": 2048}, desk=desk) as it:
        yield it


@pytest.fixture(scope="module")
def elsewhere(model_path: Path) -> LLM:
    """The same model on another backend."""
    return LLM(model_path, backend="reference", context_len=2048)


def found_in(value: Any) -> list[Receipt]:
    """All receipts within an answer, in their order."""
    if isinstance(value, list):
        return [receipt for item in value for receipt in found_in(item)]
    if not isinstance(value, dict):
        return []
    own = [from_json(json.dumps(value["receipt"]).encode())] if isinstance(value.get("receipt"), dict) else []
    return own + [receipt for name, item in value.items() if name != "receipt" for receipt in found_in(item)]


def events_of(text: str) -> list[Any]:
    """The events of a stream, of any protocol."""
    lines = [line.removeprefix("data: ") for line in text.splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO, "max_tokens": 6, "seed": 3},
    "/v1/completions": {"prompt": ["hello", "hi aaaa"], "max_tokens": 6, "seed": 3},
    "/v1/responses": {"input": "hello hi", "max_output_tokens": 6, "seed": 3},
    "/v1/messages": {"messages": HELLO, "max_tokens": 6, "seed": 3},
    "/api/chat": {"messages": HELLO, "options": {"num_predict": 6, "seed": 3}},
    "/api/generate": {"prompt": "hello hi", "options": {"num_predict": 6, "seed": 3}},
}


@pytest.mark.parametrize("path", BODIES)
def test_every_protocol_gives_the_same_receipt_whole_and_streamed(
    keeping: Running, elsewhere: LLM, keys: tuple[Path, Path], path: str
) -> None:
    with keeping.client() as client:
        asked = {**BODIES[path], "receipt": True}
        whole = found_in(client.post(path, json={**asked, "stream": False}).json())
        events = events_of(client.post(path, json={**asked, "stream": True}).text)
        plain = client.post(path, json={**BODIES[path], "stream": False}).text
    assert whole
    assert sorted(r.to_json() for r in found_in(events)) == sorted(r.to_json() for r in whole)
    assert found_in(events[:1]) == []
    assert '"receipt"' not in plain
    assert all(verdict.is_same for verdict in elsewhere.replay(whole, public_key=keys[1]))
    keeping.check_idle()


@pytest.mark.parametrize(
    "wishes",
    [
        {"n": 3, "temperature": 0.9, "presence_penalty": 0.5, "logit_bias": {"5": 2.0}},
        {"stop": ["a", "b"], "temperature": 1.0, "max_tokens": 40},
        {"regex": "[ab]{4}", "max_tokens": 20},
        {"response_format": {"type": "json_object"}, "max_tokens": 20, "n": 2},
        {"tools": [WEATHER], "tool_choice": "required", "max_tokens": 80},
        {"tools": [WEATHER], "max_tokens": 10},
    ],
    ids=["several", "stop", "regex", "json", "call", "offer"],
)
def test_what_shapes_an_answer_is_part_of_its_receipt(keeping: Running, elsewhere: LLM, wishes: dict[str, Any]) -> None:
    with keeping.client() as client:
        body = {"messages": HELLO, "seed": 5, "max_tokens": 8, "receipt": True, **wishes}
        reply = client.post("/v1/chat/completions", json=body).json()
    receipts = found_in(reply)
    assert [r.sample_index for r in receipts] == list(range(wishes.get("n", 1)))
    assert all(verdict.is_same for verdict in elsewhere.replay(receipts))


def test_receipts_of_all_answers_are_kept(keeping: Running) -> None:
    with keeping.client() as client:
        body = {"prompt": ["hello", "hi"], "n": 2, "seed": 1, "max_tokens": 4}
        asked = client.post("/v1/completions", json={**body, "receipt": True}).json()
        reply = client.post("/v1/completions", json=body)
        answer_id, request_id = reply.json()["id"], reply.headers["x-request-id"]
        lines = client.get(f"/v1/receipts/{answer_id}").text
        assert client.get(f"/v1/receipts/{request_id}").text == lines
        missing = client.get("/v1/receipts/cmpl-nothing")
    assert [from_json(line.encode()) for line in lines.splitlines()] == found_in(asked)
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "receipt_not_found")


def test_a_server_keeps_none_unless_told_to(server: Running) -> None:
    with server.client() as client:
        reply = client.post("/v1/chat/completions", json={"messages": HELLO, "max_tokens": 2}).json()
        refused = client.get(f"/v1/receipts/{reply['id']}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "receipts_not_kept")


def test_kept_receipts_end_with_their_time_and_make_room(keeping: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with keeping.client() as client:
        (receipt,) = found_in(
            client.post("/v1/chat/completions", json={"messages": HELLO, "max_tokens": 2, "receipt": True}).json()
        )
    now = 0.0
    desk = ReceiptDesk(None, 10, lambda: now)
    monkeypatch.setattr(desk_module, "MAX_KEPT_ANSWERS", 3)
    for number in range(5):
        desk.keep(f"r{number}", desk, 0, 0, receipt)
    assert [bool(desk.find(f"r{number}")) for number in range(5)] == [False, False, True, True, True]
    desk.keep("r4", desk, 0, 1, receipt)
    assert len(desk.find("chatcmpl-r4")) == 2
    desk.keep("r4", receipt, 0, 1, receipt)  # another request, with an id that its client has chosen
    assert len(desk.find("r4")) == 1
    now = 10.5
    assert desk.find("r4") == []
    monkeypatch.setattr(desk_module, "MAX_KEPT_BYTES", 1)
    desk.keep("r5", desk, 0, 0, receipt)
    assert desk.find("r5") == []
    with pytest.raises(BadInput, match="--receipts"):
        ReceiptDesk(None, -1)


def test_the_hash_of_a_large_model_holds_up_nobody(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for receipts waits until the model's files are hashed; other clients and the server's end do not."""
    is_hashed, num_hashes = threading.Event(), itertools.count()
    with running(model_path, limits=Limits(drain_seconds=1)) as server:

        def hashed() -> Any:
            next(num_hashes)
            is_hashed.wait(60)
            raise OSError("the files have gone")

        monkeypatch.setattr(server.llm.engine, "_identity", hashed)
        body = {"messages": HELLO, "max_tokens": 2}

        def ask_for_receipt() -> None:
            with suppress(httpx.TransportError), server.client() as client:
                client.post("/v1/chat/completions", json={**body, "receipt": True})

        asking = [threading.Thread(target=ask_for_receipt) for _ in range(10)]
        for thread in asking:
            thread.start()
        with server.client() as client:
            assert client.post("/v1/chat/completions", json=body).status_code == 200
        assert next(num_hashes) == 1
        began = time.monotonic()
    assert time.monotonic() - began < 20
    is_hashed.set()
    for thread in asking:
        thread.join()
