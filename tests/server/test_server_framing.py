"""Where requests begin and end, byte by byte: what can be read in two ways is refused and its connection closed."""

from __future__ import annotations

import json
import re
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_server import Running
from raw_client import exchange, open_socket, read_to_end

HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
JSON = b"Content-Type: application/json\r\n"
POST = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + JSON
CHUNKED = b"Transfer-Encoding: chunked\r\n"
TEXT = b'{"text": "hi"}'


STATUS_LINE = re.compile(rb"HTTP/1\.1 [0-9]{3} ")


def status_of(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1])


REFUSED = {
    "a length and chunks": (POST + b"Content-Length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n" + HIDDEN, 400),
    "chunks and a length": (POST + CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n" + HIDDEN, 400),
    "two lengths": (POST + b"Content-Length: 0\r\nContent-Length: 40\r\n\r\n" + HIDDEN, 400),
    "the same length twice": (POST + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n" + HIDDEN, 400),
    "lengths in a list": (POST + b"Content-Length: 0, 0\r\n\r\n" + HIDDEN, 400),
    "a signed length": (POST + b"Content-Length: +0\r\n\r\n" + HIDDEN, 400),
    "a length in hex": (POST + b"Content-Length: 0x0\r\n\r\n" + HIDDEN, 400),
    "a length of 10**30": (POST + b"Content-Length: 1" + b"0" * 30 + b"\r\n\r\n", 400),
    "chunks twice": (POST + CHUNKED + CHUNKED + b"\r\n0\r\n\r\n" + HIDDEN, 400),
    "another coding": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + HIDDEN, 501),
    "a coding in HTTP/1.0": (POST.replace(b"/1.1", b"/1.0") + CHUNKED + b"\r\n0\r\n\r\n" + HIDDEN, 400),
    "a folded line": (POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + HIDDEN, 400),
    "lines without CR": (POST.replace(b"\r\n", b"\n") + b"Content-Length: 0\n\n" + HIDDEN, 400),
    "one line without CR": (POST + b"X: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN, 400),
    "a CR in a line": (POST + b"X: y\rTransfer-Encoding: chunked\r\n\r\n" + HIDDEN, 400),
    "a blank before the colon": (POST + b"Content-Length : 0\r\n\r\n" + HIDDEN, 400),
    "a blank before the name": (POST + b" Content-Length: 0\r\n\r\n" + HIDDEN, 400),
    "no name": (POST + b": 0\r\n\r\n" + HIDDEN, 400),
    "a NUL": (POST + b"X: \0\r\n\r\n" + HIDDEN, 400),
    "two hosts": (POST + b"Host: localhost\r\nContent-Length: 0\r\n\r\n" + HIDDEN, 400),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n" + HIDDEN, 400),
    "HTTP/0.9": (b"GET /health\r\n\r\n" + HIDDEN, 400),
    "HTTP/0.9 by its number": (b"GET /health HTTP/0.9\r\nHost: localhost\r\n\r\n" + HIDDEN, 505),
    "HTTP/2.0": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "an absolute target": (b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n" + HIDDEN, 400),
    "a target of CONNECT": (b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n" + HIDDEN, 400),
    "many headers": (POST + b"X: y\r\n" * 200 + b"\r\n" + HIDDEN, 431),
    "a long header": (POST + b"X: " + b"y" * 40_000 + b"\r\n\r\n" + HIDDEN, 431),
    "a long head without end": (POST + b"X: " + b"y" * 40_000, 431),
    "a chunk that is no number": (POST + CHUNKED + b"\r\nzz\r\n" + HIDDEN, 400),
    "a chunk with a sign": (POST + CHUNKED + b"\r\n-1\r\n" + HIDDEN, 400),
    "a chunk longer than said": (POST + CHUNKED + b"\r\n2\r\nabcd\r\n0\r\n\r\n" + HIDDEN, 400),
    "a chunk's line without CR": (POST + CHUNKED + b"\r\n2\nab\r\n0\r\n\r\n" + HIDDEN, 400),
    "chunks of a byte": (POST + CHUNKED + b"\r\n" + b"1\r\n \r\n" * 40_000, 400),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(server: Running, name: str) -> None:
    data, status = REFUSED[name]
    reply = exchange(server.url, data)
    assert status_of(reply) == status
    assert b"/hidden" not in reply
    assert len(STATUS_LINE.findall(reply)) == 1
    assert b"connection: close" in reply.lower()
    assert json.loads(reply.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"


LENGTHS = (
    b"Content-Length: 14",
    b"content-length:14",
    b"Content-Length: 0",
    b"Content-Length: 14, 14",
    b"CONTENT-LENGTH: 1",
)
CODINGS = (b"Transfer-Encoding: chunked", b"transfer-encoding:chunked", b"Transfer-Encoding: identity")
CODINGS += (b"Transfer-Encoding: Chunked", b"Transfer-Encoding: x, chunked", b"Transfer-Encoding: chunked;q=1")
framings = st.lists(st.sampled_from(LENGTHS + CODINGS), min_size=2, max_size=4)
bodies = st.sampled_from((TEXT, b"e\r\n" + TEXT + b"\r\n0\r\n\r\n", b"0\r\n\r\n", b""))


@settings(max_examples=60, deadline=None)
@given(framings, bodies, st.integers(0, 3))
def test_two_statements_of_a_length_never_show_what_is_behind_them(
    server: Running, lines: list[bytes], body: bytes, num_others: int
) -> None:
    others = [b"X-A: 1", b"Accept: */*", b"X-B: Content-Length: 3"][:num_others]
    head = POST + b"\r\n".join([*lines[:1], *others, *lines[1:]]) + b"\r\n\r\n"
    reply = exchange(server.url, head + body + HIDDEN)
    assert 400 <= status_of(reply) < 600
    assert b"/hidden" not in reply
    assert len(STATUS_LINE.findall(reply)) == 1


ENDS = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
LENGTH = b"Content-Length: %d\r\n\r\n" % len(TEXT)
TAKEN = {
    "one after the other": POST + LENGTH + TEXT + ENDS,
    "in chunks": POST
    + CHUNKED
    + b"\r\n4;x=y\r\n"
    + TEXT[:4]
    + b"\r\na\r\n"
    + TEXT[4:]
    + b"\r\n0\r\nX: y\r\n\r\n"
    + ENDS,
    "with a wish to go on": POST + b"Expect: 100-continue\r\n" + LENGTH + TEXT + ENDS,
    "with a wish for a socket": POST + b"Connection: upgrade\r\nUpgrade: websocket\r\n" + LENGTH + TEXT + ENDS,
    "with a wish for HTTP/2": POST + b"Connection: upgrade\r\nUpgrade: h2c\r\n" + LENGTH + TEXT + ENDS,
    "with a body that GET needs not": b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + LENGTH + TEXT + ENDS,
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_answered_twice(server: Running, name: str) -> None:
    """Two requests in one go, each answered, in order."""
    reply = exchange(server.url, TAKEN[name])
    assert reply.count(b"HTTP/1.1 200") == 2
    assert reply.rstrip().endswith(b'{"status":"ready","reason":""}')


def test_a_client_that_waits_for_a_word_before_its_body(server: Running) -> None:
    with closing(open_socket(server.url)) as sock:
        sock.sendall(POST + b"Expect: 100-continue\r\n" + LENGTH)
        assert sock.recv(1000).startswith(b"HTTP/1.1 100 ")
        sock.sendall(TEXT + ENDS)
        assert read_to_end(sock).count(b"HTTP/1.1 200") == 2
    with closing(open_socket(server.url)) as sock:  # and one whose body is too long hears that at once
        sock.sendall(POST + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n")
        assert status_of(sock.recv(1000)) == 413


def test_bytes_one_by_one(server: Running) -> None:
    with closing(open_socket(server.url)) as sock:
        for byte in POST + LENGTH + TEXT + ENDS:
            sock.sendall(bytes([byte]))
        assert read_to_end(sock).count(b"HTTP/1.1 200") == 2
