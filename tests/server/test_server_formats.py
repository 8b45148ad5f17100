"""Response formats of strangers: each costs its own request alone, and every process of theirs ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from hostile_formats import HOSTILE, endless, regex_format
from live_server import Running, free_port, running
from processes import cpu_seconds, descendants
from test_server_process import process, wait_healthy

from samebits.server.grammar import grammars
from samebits.server.limits import Limits

CHAT = "/v1/chat/completions"
GOOD = regex_format("(ab|cd){3}")


@pytest.fixture(scope="module")
def hasty(model_path: Path) -> Iterator[Running]:
    """Gives formats little time, for the sake of ours."""
    with running(model_path, limits=Limits(grammar_seconds=0.15)) as it:
        yield it


def asking(kind: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 8,
        "response_format": kind,
        "seed": 1,
        **more,
    }


def wait_until(is_so: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.02)


def workers(pid: int) -> list[int]:
    """Processes of grammars below one."""
    return [p for p in descendants(pid) if "grammar.worker" in command_line(p)]


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_hostile_formats_cost_their_own_request_alone(hasty: Running) -> None:
    """Each is answered or refused in a line; other formats are served meanwhile; then no process works on."""
    with ThreadPoolExecutor(1) as pool, hasty.client() as client, hasty.client() as other:
        for name, kind in HOSTILE.items():
            pending = pool.submit(client.post, CHAT, json=asking(kind))
            while not pending.done():
                assert other.post(CHAT, json=asking(GOOD)).json()["choices"], name
            reply = pending.result()
            assert reply.status_code in (200, 400, 500), name
            if reply.status_code != 200:
                message = reply.json()["error"]["message"]
                assert "response_format" in message, name
                assert message.isprintable(), name
    before = cpu_seconds(os.getpid())
    time.sleep(0.3)
    assert cpu_seconds(os.getpid()) - before < 0.2
    hasty.check_idle()


def test_a_flood_of_bad_formats_delays_no_chat_and_is_sent_away(hasty: Running) -> None:
    most = grammars.MAX_COMPILING + grammars.MAX_WAITING + 24
    many = httpx.Limits(max_connections=most)
    with ThreadPoolExecutor(most) as pool, hasty.client() as client, hasty.client(limits=many) as flooding:
        assert client.post(CHAT, json=asking(GOOD)).status_code == 200
        flood = [pool.submit(flooding.post, CHAT, json=asking(endless(i))) for i in range(most)]
        num_served = 0
        while not all(f.done() for f in flood):
            plain = client.post(CHAT, json={"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2})
            assert plain.status_code == 200
            assert client.post(CHAT, json=asking(GOOD)).status_code == 200  # is known, so it waits for nobody
            num_served += 1
    assert {f.result().status_code for f in flood} == {400, 503}
    assert num_served > 3


def test_nobody_compiles_for_a_client_that_has_gone(server: Running) -> None:
    """Those that wait for a turn are forgotten at once; twelve one after another would take much longer."""

    def leave(number: int) -> None:
        with server.client() as client, pytest.raises(httpx.ReadTimeout):
            client.post(CHAT, json=asking(endless(1000 + number)), timeout=httpx.Timeout(60, read=0.3))

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(leave, range(12)))
    wait_until(lambda: server.served.grammars.num_compiling <= grammars.MAX_COMPILING, seconds=4)
    wait_until(lambda: server.served.grammars.num_compiling == 0)


def test_a_format_is_compiled_once_and_a_request_leaves_no_process(hasty: Running) -> None:
    with hasty.client() as client:
        first = client.post(CHAT, json=asking(GOOD)).json()["choices"]
        known = wait_settled(os.getpid())
        for _ in range(5):
            assert client.post(CHAT, json=asking(GOOD)).json()["choices"] == first
        assert set(wait_settled(os.getpid())) <= set(known)
        with client.stream("POST", CHAT, json=asking({"type": "json_object"}, max_tokens=300, stream=True)) as reply:
            next(reply.iter_lines())
        assert len(set(wait_settled(os.getpid())) - set(known)) == 1  # the one that keeps the format
    hasty.check_idle()


def wait_settled(pid: int) -> list[int]:
    """The processes of grammars, when none has come or gone for a while."""
    seen, since = workers(pid), time.monotonic()
    while time.monotonic() - since < 0.5:
        time.sleep(0.02)
        if (now := workers(pid)) != seen:
            seen, since = now, time.monotonic()
    return seen


def test_a_mask_that_never_comes_fails_its_request_alone(hasty: Running) -> None:
    """Here because its process is stopped; one that computes for too long is ended the same way."""
    with ThreadPoolExecutor(1) as pool, hasty.client() as client, hasty.client() as other:
        client.post(CHAT, json=asking(GOOD))
        known = set(wait_settled(os.getpid()))
        long = asking(regex_format("(ab|cd)+"), max_tokens=400, ignore_eos=True)
        pending = pool.submit(client.post, CHAT, json=long)
        wait_until(lambda: len(set(workers(os.getpid())) - known) == 2)  # of the format, and of the request
        follower = max(set(workers(os.getpid())) - known)
        os.kill(follower, signal.SIGSTOP)
        try:
            plain = other.post(CHAT, json={"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3})
            assert plain.status_code == 200
            failed = pending.result(30)
        finally:
            os.kill(follower, signal.SIGKILL)
        assert failed.status_code == 500
        assert "response_format is a format whose next token takes too much" in failed.json()["error"]["message"]
        assert other.post(CHAT, json=asking(GOOD)).status_code == 200
    hasty.check_idle()


def test_processes_that_were_killed_are_started_anew(hasty: Running) -> None:
    with hasty.client() as client:
        first = client.post(CHAT, json=asking(GOOD)).json()["choices"]
        for pid in wait_settled(os.getpid()):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not workers(os.getpid()))
        assert client.post(CHAT, json=asking(GOOD)).json()["choices"] == first


def test_a_process_that_ends_before_it_forks_for_a_request_is_started_anew(hasty: Running) -> None:
    """It is stopped here, so that the request finds its socket open, and killed when the request waits for it."""
    with ThreadPoolExecutor(1) as pool, hasty.client() as client:
        first = client.post(CHAT, json=asking(GOOD)).json()["choices"]
        stopped = wait_settled(os.getpid())
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        pending = pool.submit(client.post, CHAT, json=asking(GOOD))
        time.sleep(0.3)  # it may come later: then it finds the process dead, as in the test above
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
        assert pending.result().json()["choices"] == first


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_during_a_bad_compilation_leaves_nothing(model_path: Path, number: int) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with process(
        "--model", str(model_path), "--port", str(port), "--context-len", "128", "--grammar-seconds", "0.5"
    ) as server:
        wait_healthy(url, server)
        assert httpx.post(url + CHAT, json=asking(GOOD), timeout=60, verify=False).status_code == 200

        def ask(i: int) -> None:
            try:
                httpx.post(url + CHAT, json=asking(endless(i)), timeout=60, verify=False)
            except httpx.TransportError:
                return  # the server has gone

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(workers(server.pid)) >= 3)
        theirs, start = workers(server.pid), time.monotonic()
        server.send_signal(number)
        assert server.wait(30) == (0 if number == signal.SIGTERM else -number)
        assert time.monotonic() - start < 15
        wait_until(lambda: not any("grammar.worker" in command_line(p) for p in theirs))
        for thread in threads:
            thread.join()
