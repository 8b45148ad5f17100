"""KV events: real subscribers hear what the caches of real servers hold, and the engine never waits for them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import zmq
from kv_subscriber import SECONDS, Batch, listening, replayed
from live_server import NAME, Running, running
from random_tiny import write_random_tiny
from test_server_process import called, process, wait_healthy

from samebits.core.errors import BadInput, Unavailable
from samebits.core.installing import install_command
from samebits.server.kv_events.publisher import KvEventPublisher
from samebits.server.kv_events.sockets import EventSockets
from samebits.server.kv_events.wire import BlockRemoved, BlockStored, Naming, Removed, Stored

ANY = "tcp://127.0.0.1:*"
CLEARED = ["AllBlocksCleared"]
TOPIC = "kv@pod@tiny"
TOKENS = np.arange(4, dtype=np.int32).tobytes()


@contextmanager
def telling(path: Path, **llm_options: Any) -> Iterator[tuple[Running, tuple[str, ...]]]:
    """A server that publishes; its addresses."""
    sockets = EventSockets(ANY, ANY, TOPIC)
    addresses = sockets.addresses
    with running(path, llm_options, publisher=KvEventPublisher(sockets)) as server:
        yield server, addresses


def ask(server: Running, prompt: list[int], max_tokens: int = 1, **more: Any) -> dict[str, Any]:
    body = {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0, **more}
    with server.client() as client:
        reply = client.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def everything(addresses: tuple[str, ...]) -> list[Any]:
    """All events from number 0 on, by replay; numbers have no gap."""
    context = zmq.Context()
    try:
        batches = replayed(context, addresses[1], 0)
    finally:
        context.destroy(linger=0)
    assert [number for _, number, _ in batches] == list(range(len(batches)))
    assert {topic for topic, _, _ in batches} == {TOPIC.encode()}
    return [event for _, _, events in batches for event in events]


def all_held(addresses: tuple[str, ...], num_blocks: int) -> dict[int, tuple[int, ...]]:
    """What is held when that many blocks are: events are told after the answer that they belong to."""
    deadline = time.monotonic() + SECONDS
    while len(found := held(everything(addresses))) != num_blocks:
        assert time.monotonic() < deadline, f"{len(found)} blocks, but must be {num_blocks}"
    return found


def held(events: list[Any]) -> dict[int, tuple[int, ...]]:
    """What a router knows of them: hashes, and all tokens up to their block's end."""
    known: dict[int, tuple[int, ...]] = {}
    for kind, *fields in events:
        if kind == "BlockStored":
            hashes, parent, tokens, size, lora_id, medium, lora_name = fields
            assert (lora_id, medium, lora_name) == (None, "GPU", None)
            assert len(tokens) == len(hashes) * size
            start = known[parent] if parent is not None else ()
            for i, block in enumerate(hashes):
                known[block] = (*start, *tokens[: (i + 1) * size])
        elif kind == "BlockRemoved":
            hashes, medium = fields
            assert medium == "GPU"
            for block in hashes:
                del known[block]
        else:
            known.clear()
    return known


def last_pages(events: list[Any]) -> set[bytes]:
    """The tokens of each block that is held, as the cache's index has them."""
    return {np.array(tokens[-16:], np.int32).tobytes() for tokens in held(events).values()}


def test_two_servers_with_one_model_give_the_same_hashes_for_the_same_prompts(model_path: Path) -> None:
    prompts = [[*range(5, 55)], [*range(5, 37), *range(100, 130)], [9] * 70]
    with telling(model_path) as (one, ours), telling(model_path, max_sequences=2, num_pages=64) as (other, theirs):
        for prompt in prompts:
            ask(one, prompt)
        for prompt in reversed(prompts):
            ask(other, prompt)
        starts = {tuple(p[:n]) for p in prompts for n in range(16, len(p) + 1, 16)}
        here, there = all_held(ours, len(starts)), all_held(theirs, len(starts))
    assert here == there
    assert set(here.values()) == starts
    assert all(1 << 32 < block < 1 << 64 for block in here)


def test_another_model_has_other_hashes(model_path: Path, tmp_path: Path) -> None:
    another = write_random_tiny(tmp_path / "another.gguf", num_extra_ids=3)
    assert another.read_bytes() != model_path.read_bytes()
    with telling(model_path) as (one, ours), telling(another) as (other, theirs):
        for server in (one, other):
            ask(server, [*range(5, 40)])
        here, there = all_held(ours, 2), all_held(theirs, 2)
    assert sorted(here.values()) == sorted(there.values())
    assert not here.keys() & there.keys()


def test_a_salt_gives_other_hashes(model_path: Path) -> None:
    with telling(model_path) as (server, addresses):
        ask(server, [*range(5, 40)])
        plain = all_held(addresses, 2)
        ask(server, [*range(5, 40)], cache_salt="tenant")
        salted = all_held(addresses, 4)
    assert sorted(salted.values()) == sorted(2 * [*plain.values()])


def test_a_subscriber_hears_pages_stored_evicted_and_cleared(model_path: Path) -> None:
    sockets = EventSockets(ANY, ANY, TOPIC)
    addresses, options = sockets.addresses, {"context_len": 128, "num_pages": 10}
    with listening(addresses[0]) as (subscriber,):
        heard: list[Batch] = []
        with running(model_path, options, publisher=KvEventPublisher(sockets)) as server:
            for start in range(0, 200, 10):
                ask(server, [*range(start, start + 60)], max_tokens=4)
            pool = server.llm.engine.scheduler.pages.pool
            index = {prefix.tokens for prefix in pool._prefix_of.values()}
            deadline = time.monotonic() + SECONDS
            while last_pages(told := everything(addresses)) != index:
                assert time.monotonic() < deadline, "what the events tell is not what the cache holds"
        assert told[0] == CLEARED
        num_told = 0
        while num_told < len(told) - 1 or heard[-1][2] != [CLEARED]:  # the first may come before the subscription does
            heard.append(subscriber.next())
            num_told += len(heard[-1][2])
    numbers = [number for _, number, _ in heard]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert {event[0] for _, _, events in heard for event in events} == {"BlockStored", "BlockRemoved", *CLEARED}


def test_a_process_tells_and_a_replay_gives_all_of_it(model_path: Path, tmp_path: Path) -> None:
    addresses = tuple(f"ipc://{tmp_path}/{name}" for name in ("events", "replay"))
    options = ["--model", str(model_path), "--port", "0", "--context-len", "128", "--served-name", NAME]
    options += ["--kv-events", addresses[0], "--kv-events-replay", addresses[1], "--kv-events-topic", TOPIC]
    with process(*options) as server:
        assert server.stderr is not None
        said = [next(server.stderr).strip() for _ in range(2)]
        assert said == [f"--kv-events listens on {addresses[0]}", f"--kv-events-replay listens on {addresses[1]}"]
        line = next(text for text in server.stderr if " is ready at " in text)
        url = line.split(" at ")[1].partition(",")[0]
        wait_healthy(url, server)
        prompt = [*range(5, 40)]
        reply = httpx.post(f"{url}/v1/completions", json={"prompt": prompt, "max_tokens": 1}, timeout=60, verify=False)
        assert reply.status_code == 200
        assert set(all_held(addresses, 2).values()) == {tuple(prompt[:16]), tuple(prompt[:32])}
        server.terminate()
        assert server.wait(30) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kv-events", "5557"), "--kv-events is 5557, but must be an address such as tcp://*:5557"),
        (("--kv-events", "tcp://nowhere"), "--kv-events is tcp://nowhere, but must be a host, and a port"),
        (("--kv-events-topic", "kv@a@b"), "--kv-events-topic is kv@a@b, but needs --kv-events as well"),
    ],
)
def test_a_wrong_address_is_a_line(
    model_path: Path,
    options: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert called(monkeypatch, "--model", str(model_path), "--port", "0", *options) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


def test_an_address_in_use_is_a_line() -> None:
    taken = EventSockets(ANY, None, TOPIC)
    (address,) = taken.addresses
    with pytest.raises(Unavailable, match="Address already in use"):
        EventSockets(address.replace("127.0.0.1", "*"), None, TOPIC)
    with pytest.raises(BadInput, match="--kv-events-replay is udp://x"):
        EventSockets(ANY, "udp://x", TOPIC)
    taken.close()


def test_a_full_queue_drops_counts_and_leaves_a_number_out() -> None:
    sockets = EventSockets(ANY, ANY, TOPIC)
    publisher, dropped = KvEventPublisher(sockets, max_queued=3), []
    publisher.on_drop = lambda: dropped.append(1)
    digests = [bytes([i]) * 16 for i in range(8)]
    for parent, digest in zip([None, *digests], digests[:5], strict=False):
        publisher.stored(parent, digest, TOKENS)  # no thread takes them yet: two find no room
    assert len(dropped) == 2
    publisher.start(b"model", 4)
    while publisher._queue.qsize():
        pass
    publisher.removed(digests[0])
    context, batches = zmq.Context(), list[Batch]()
    while len(batches) < 4:
        batches = replayed(context, sockets.addresses[1], 0)
    context.destroy(linger=0)
    publisher.close()
    assert [(number, [event[0] for event in events]) for _, number, events in batches] == [
        (0, ["AllBlocksCleared"]),
        (1, ["BlockStored"]),
        (3, ["AllBlocksCleared"]),  # 2 is missing: changes were lost, so nothing that was told counts
        (4, ["BlockRemoved"]),
    ]


def test_changes_that_belong_together_are_one_event() -> None:
    naming = Naming(b"model", 4)
    a, b, c = (bytes([i]) * 16 for i in range(3))
    changes = [Stored(None, a, TOKENS), Stored(a, b, TOKENS), Removed(a), Removed(b), Stored(b, c, TOKENS)]
    stored, removed, later = naming.events(changes)
    assert stored == BlockStored([naming.name(a), naming.name(b)], None, [0, 1, 2, 3] * 2, 4)
    assert removed == BlockRemoved([naming.name(a), naming.name(b)])
    assert later == BlockStored([naming.name(c)], naming.name(b), [0, 1, 2, 3], 4)
    assert len(naming.events([Stored(None, a, TOKENS), Stored(None, b, TOKENS)])) == 2


def test_without_the_extra_a_line_says_what_to_install(model_path: Path) -> None:
    code = "import sys; sys.modules['msgspec'] = None; from samebits.cli.main import main; main()"
    call = [sys.executable, "-c", code, "serve", "--model", str(model_path), "--port", "0", "--kv-events", ANY]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60)
    assert f"msgspec is not installed; needs {install_command('kv-events')}" in done.stderr
    assert done.returncode != 0
