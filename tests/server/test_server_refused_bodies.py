"""A client that is refused while it still sends gets to read why, also where the connection ends with the answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from live_server import Running, running
from raw_client import open_socket

from samebits.server.http.security import Door
from samebits.server.limits import LINGER_SECONDS, Limits

KEY = "s3cret"
SIZE = 24 << 20  # more than the buffers of a connection hold, so that the client still sends when it is refused
JSON = "content-type: application/json\r\n"
ALLOWED = f"authorization: Bearer {KEY}\r\n"
LENGTH = f"content-length: {SIZE}\r\n"
REFUSED = {
    "length": (413, "POST", "/v1/completions", ALLOWED + JSON + LENGTH),
    "type": (415, "POST", "/v1/completions", ALLOWED + "content-type: text/plain\r\n" + LENGTH),
    "key": (401, "POST", "/v1/completions", JSON + LENGTH),
    "path": (404, "POST", "/nothing", ALLOWED + JSON + "content-length: 4000000\r\n"),
    "method": (405, "PUT", "/v1/completions", ALLOWED + JSON + LENGTH),
    "chunks": (413, "POST", "/v1/completions", ALLOWED + JSON + "transfer-encoding: chunked\r\n"),
    "head": (400, "POST", "/v1/completions", ALLOWED + LENGTH + LENGTH),
}


@pytest.fixture(scope="module")
def locked(model_path: Path) -> Iterator[Running]:
    limits = Limits(max_body_bytes=4 << 20)
    with running(model_path, door=Door(KEY), limits=limits) as it:
        yield it


def body(is_chunked: bool, size: int) -> bytes:
    chunk = b"10000\r\n" + b" " * (1 << 16) + b"\r\n"
    return chunk * (size >> 16) + b"0\r\n\r\n" if is_chunked else b" " * size


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize("name", REFUSED)
def test_the_refusal_arrives_before_the_connection_ends(locked: Running, name: str, version: str) -> None:
    status, method, path, headers = REFUSED[name]
    is_chunked = "chunked" in headers
    if is_chunked and version == "HTTP/1.0":
        status = 400  # it has no chunks
    size = 4_000_000 if "4000000" in headers else SIZE
    head = f"{method} {path} {version}\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n"
    with closing(open_socket(locked.url)) as sock:
        sock.sendall(head.encode() + body(is_chunked, size))  # all of it, as most clients do
        reply = b""
        while part := sock.recv(1 << 16):  # a reset raises
            reply += part
    first, _, rest = reply.partition(b"\r\n")
    assert int(first.split()[1]) == status
    content = rest.partition(b"\r\n\r\n")[2]
    assert json.loads(content)["error"]["message"]


def test_who_goes_on_sending_is_cut_before_long(locked: Running) -> None:
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{ALLOWED}{JSON}{LENGTH}\r\n"
    started = time.monotonic()
    with closing(open_socket(locked.url)) as sock:
        sock.sendall(head.encode())
        with suppress(OSError):  # it ends with a reset
            while time.monotonic() < started + 20 * LINGER_SECONDS:
                sock.sendall(b" " * 100)
                time.sleep(0.05)
    assert time.monotonic() < started + 10 * LINGER_SECONDS
