"""Slow and many connections, by real sockets: they are bounded, and whoever comes beside them is answered."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import Running, free_port, running
from raw_client import open_socket, read_to_end
from test_server_process import COMMAND, wait_healthy

from samebits.server.answers import engine_streams
from samebits.server.http.connection import address_of
from samebits.server.limits import KEEP_ALIVE_SECONDS, MIN_BODY_BYTES_PER_SECOND, Limits

resource = pytest.importorskip("resource")
COMPLETE = "/v1/completions"
HEAD = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SLOW = (
    b"",
    b"GET /hea",
    HEAD,
    HEAD + b"Content-Length: 500\r\n\r\n{",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n",
)
ARRIVAL_SECONDS, STALL_SECONDS = 0.4, 0.6


@pytest.fixture(scope="module")
def hasty(model_path: Path) -> Iterator[Running]:
    """A server whose patience is short."""
    limits = Limits(arrival_seconds=ARRIVAL_SECONDS, stall_seconds=STALL_SECONDS, max_address_connections=8)
    with running(model_path, {"context_len": 2000}, limits=limits) as it:
        yield it


def test_a_thousand_slow_connections(model_path: Path) -> None:
    """From the address of the normal client, to a server that may have 600 descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("this test needs 2000 descriptors of its own")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    call = ["sh", "-c", 'ulimit -n 600; exec "$@"', "sh", *COMMAND, "--model", str(model_path), "--port", str(port)]
    server = subprocess.Popen(call, stderr=subprocess.PIPE, text=True)
    try:
        wait_healthy(url, server)
        started = time.monotonic()
        with ExitStack() as open_ones:
            for number in range(1000):
                slow = open_ones.enter_context(closing(open_socket(url)))
                slow.sendall(SLOW[number % len(SLOW)])
                if number % 100 == 99:
                    assert httpx.get(f"{url}/v1/models", timeout=20, verify=False).status_code == 200
            wishes = {"prompt": "hello", "max_tokens": 20, "ignore_eos": True}
            reply = httpx.post(f"{url}{COMPLETE}", json=wishes, timeout=20, verify=False)
            assert reply.json()["usage"]["completion_tokens"] == 20
            held = len(list(Path(f"/proc/{server.pid}/fd").iterdir())) if Path("/proc/self").exists() else 0
            assert held < 400
            metrics = httpx.get(f"{url}/metrics", verify=False).text
            made_room = re.search(r'closed_connections_total\{reason="closed: made room[^}]*\} (\S+)', metrics)
            assert made_room is not None
        seconds = time.monotonic() - started
    finally:
        server.terminate()
        _, log = server.communicate(timeout=60)
    lines = [line for line in log.splitlines() if "connections: " in line]
    assert 1 <= len(lines) <= seconds + 3
    assert sum(int(n) for n in re.findall(r"(\d+) closed: made room", log)) >= 600
    assert "Traceback" not in log


def closing_reply(sock: socket.socket) -> tuple[int, float]:
    """The status with which the server closes, 0 for none, and after how many seconds."""
    started = time.monotonic()
    reply = read_to_end(sock)
    return int(reply.split(b" ", 2)[1]) if reply else 0, time.monotonic() - started


def test_what_does_not_arrive_is_cut(hasty: Running) -> None:
    with ExitStack() as open_ones:
        socks = [open_ones.enter_context(closing(open_socket(hasty.url))) for _ in SLOW]
        for sock, sent in zip(socks, SLOW, strict=True):
            sock.sendall(sent)
        ends = [closing_reply(sock) for sock in socks]
    assert [status for status, _ in ends] == [408 if sent else 0 for sent in SLOW]
    assert ARRIVAL_SECONDS <= ends[0][1] < ARRIVAL_SECONDS + 10


@pytest.mark.parametrize("is_head", [True, False])
def test_a_byte_now_and_then_is_not_enough(hasty: Running, is_head: bool) -> None:
    with closing(open_socket(hasty.url)) as sock:
        sock.sendall(HEAD + (b"X: " if is_head else b"Content-Length: 4000\r\n\r\n"))
        is_cut = threading.Event()

        def drip() -> None:
            while not is_cut.wait(0.1):
                try:
                    sock.sendall(b" ")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        status, seconds = closing_reply(sock)
        is_cut.set()
        dripping.join()
    assert status in (408, 0)  # 0: the reset for the last drop was faster
    assert seconds < ARRIVAL_SECONDS + 10


def test_a_body_that_goes_on_may_take_its_time(hasty: Running) -> None:
    """Four times longer than a head may, at twice the least rate."""
    body = json.dumps({"text": "x " * int(4 * ARRIVAL_SECONDS * MIN_BODY_BYTES_PER_SECOND)}).encode()
    num_parts = 24
    size = -(-len(body) // num_parts)
    with closing(open_socket(hasty.url)) as sock:
        sock.sendall(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
        for i in range(num_parts):
            time.sleep(4 * ARRIVAL_SECONDS / num_parts)
            sock.sendall(body[i * size : (i + 1) * size])
        assert b" 200 " in read_to_end(sock)


def wishes_of(**more: Any) -> bytes:
    body = json.dumps({"prompt": "hello", "ignore_eos": True, "stream": True, "seed": 1, **more}).encode()
    head = f"POST {COMPLETE} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


def test_a_long_answer_is_not_cut_by_the_limits_on_requests(hasty: Running) -> None:
    """Whether it is read slowly or at once; a pause of the engine's makes it longer than any limit."""
    plan, pause = hasty.llm.engine.scheduler.plan, 3 * max(ARRIVAL_SECONDS, STALL_SECONDS)

    def slow_plan(*given: Any) -> Any:
        hasty.llm.engine.scheduler.plan = plan  # type: ignore[method-assign]
        time.sleep(pause)
        return plan(*given)

    with closing(open_socket(hasty.url)) as sock:
        hasty.llm.engine.scheduler.plan = slow_plan  # type: ignore[method-assign]
        started = time.monotonic()
        sock.sendall(wishes_of(max_tokens=50))
        reply = read_to_end(sock)
    assert time.monotonic() - started > pause
    assert b"data: [DONE]" in reply


def unread(server: Running) -> socket.socket:
    """A connection with a small buffer that has asked for much and reads nothing yet."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(20)
    sock.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
    sock.sendall(wishes_of(max_tokens=400, n=8, logprobs=20))
    sock.recv(1, socket.MSG_PEEK)
    return sock


def test_a_client_that_does_not_read_is_cut(hasty: Running) -> None:
    """Its answer, of megabytes, stops where buffers are full, and is given up with all it holds."""
    with closing(unread(hasty)) as sock:
        deadline = time.monotonic() + 60
        while not metric(hasty, "with an answer that is not read"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        hasty.check_idle()
        assert b"[DONE]" not in read_to_end(sock)


def test_an_answer_that_is_not_read_is_not_kept_for_long(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a client is bounded in pieces too: a fast model fills memory before any time is over."""
    monkeypatch.setattr(engine_streams, "MAX_UNREAD_PIECES", 100)
    with closing(unread(server)) as sock:
        server.check_idle()
        reply = read_to_end(sock)
    assert b"the client reads its answer too slowly" in reply
    assert reply.count(b'"finish_reason":"length"') < 8


def metric(server: Running, reason: str) -> float:
    with server.client() as client:
        found = re.search(
            rf'closed_connections_total\{{reason="closed: {reason}"\}} (\S+)', client.get("/metrics").text
        )
    return float(found[1]) if found else 0.0


def test_answers_under_way_are_not_closed_for_others(hasty: Running) -> None:
    """All connections of an address have an answer due: a new one hears that there is no room."""
    with ExitStack() as open_ones:
        socks = [open_ones.enter_context(closing(open_socket(hasty.url))) for _ in range(8)]
        for sock in socks:
            sock.sendall(wishes_of(max_tokens=300))
        for sock in socks:
            sock.recv(10, socket.MSG_PEEK)
        late = open_ones.enter_context(closing(open_socket(hasty.url)))
        reply = read_to_end(late)
        assert reply.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in reply
        for sock in socks:
            assert b"data: [DONE]" in read_to_end(sock)
    hasty.check_idle()


def test_the_rest_of_a_refused_body_is_not_awaited(hasty: Running) -> None:
    with closing(open_socket(hasty.url)) as sock:
        sock.sendall(HEAD.replace(b"application/json", b"text/plain") + b"Transfer-Encoding: chunked\r\n\r\n")
        status, seconds = closing_reply(sock)
    assert status == 415
    assert seconds < 10


def test_a_connection_serves_again_after_a_pause(hasty: Running) -> None:
    """The limit on heads does not count the time between requests."""
    assert KEEP_ALIVE_SECONDS > 3 * ARRIVAL_SECONDS
    with hasty.client() as client:
        first = client.get("/health").extensions["network_stream"].get_extra_info("client_addr")
        time.sleep(3 * ARRIVAL_SECONDS)
        assert client.get("/health").extensions["network_stream"].get_extra_info("client_addr") == first


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        (("10.1.2.3", 5), "10.1.2.3"),
        (("::ffff:10.1.2.3", 5), "10.1.2.3"),
        (("2001:db8:1:2:3::4", 5), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5), "fe80::/64"),
        (("", 0), "unknown"),
        (None, "unknown"),
    ],
)
def test_whom_an_address_counts_for(client: tuple[str, int] | None, expected: str) -> None:
    assert address_of(client) == expected
