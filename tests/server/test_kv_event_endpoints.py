"""Which addresses of --kv-events are listened on, which are connected to, and that the server says so."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

import pytest
import zmq

from samebits.core.errors import BadInput
from samebits.server.kv_events import endpoints
from samebits.server.kv_events.endpoints import Endpoint, parse
from samebits.server.kv_events.sockets import EventSockets

OPTION, ELSEWHERE = "--kv-events", "192.0.2.7"  # reserved for documentation: nobody's address
LOOPBACK = socket.if_nameindex()[0][1]  # an interface


@pytest.mark.parametrize(
    ("address", "used"),
    [
        ("tcp://*:5557", "tcp://*:5557"),
        ("tcp://127.0.0.1:5557", "tcp://127.0.0.1:5557"),
        ("tcp://127.3.2.1:5557", "tcp://127.3.2.1:5557"),
        ("tcp://localhost:5557", "tcp://127.0.0.1:5557"),
        ("tcp://0.0.0.0:5557", "tcp://0.0.0.0:5557"),
        ("tcp://[::1]:5557", "tcp://[::1]:5557"),
        ("tcp://[::]:5557", "tcp://[::]:5557"),
        (f"tcp://{ELSEWHERE}:*", f"tcp://{ELSEWHERE}:*"),
        (f"tcp://{LOOPBACK}:5557", f"tcp://{LOOPBACK}:5557"),
        ("ipc:///run/events", "ipc:///run/events"),
    ],
)
def test_own_addresses_are_listened_on(address: str, used: str) -> None:
    endpoint = parse(OPTION, address)
    assert endpoint.is_bound
    assert endpoint.address == used


@pytest.mark.parametrize(
    "address", [f"tcp://{ELSEWHERE}:5557", "tcp://router.invalid:5557", "tcp://[2001:db8::7]:5557", "tcp://224.0.0.1:1"]
)
def test_other_addresses_are_connected_to(address: str) -> None:
    endpoint = parse(OPTION, address)
    assert not endpoint.is_bound
    assert endpoint.address == address


def test_a_name_of_this_machine_is_listened_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver is stood in for: what a machine's name is differs between machines."""
    places = {"pod": ["127.0.1.1"], "service": [ELSEWHERE], "both": ["127.0.1.1", ELSEWHERE]}
    places |= {"v6": ["2001:db8::7"], "dual": ["2001:db8::7", ELSEWHERE], "pod6": ["::1"]}

    def resolve(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", (ip, 0)) for ip in places[host]]

    monkeypatch.setattr(endpoints.socket, "getaddrinfo", resolve)
    assert parse(OPTION, "tcp://pod:5557").address == "tcp://127.0.1.1:5557"
    assert not parse(OPTION, "tcp://service:5557").is_bound
    assert not parse(OPTION, "tcp://both:5557").is_bound
    assert parse(OPTION, "tcp://v6:5557") == Endpoint("tcp://v6:5557", False, is_ipv6=True)
    assert parse(OPTION, "tcp://dual:5557") == Endpoint("tcp://dual:5557", False, is_ipv6=False)
    assert parse(OPTION, "tcp://pod6:5557") == Endpoint("tcp://[::1]:5557", True, is_ipv6=True)


def test_a_name_that_is_not_known_yet_may_have_either_kind_of_address() -> None:
    assert parse(OPTION, "tcp://router.invalid:5557").is_ipv6


def test_a_link_local_address_keeps_its_zone() -> None:
    own, zones = _link_local_addresses(), [name for _, name in socket.if_nameindex()]
    if not own:
        pytest.skip("this machine has no link-local address")
    assert parse(OPTION, f"tcp://[{own[0]}]:5557") == Endpoint(f"tcp://[{own[0]}]:5557", True, is_ipv6=True)
    other = f"tcp://[fe80::7:7:7:7%{zones[0]}]:5557"
    assert parse(OPTION, other) == Endpoint(other, False, is_ipv6=True)


@pytest.mark.parametrize("address", ["5557", "", "udp://127.0.0.1:5557", "inproc://events"])
def test_other_schemes_are_refused(address: str) -> None:
    with pytest.raises(BadInput, match="must be an address such as tcp://"):
        parse(OPTION, address)


@pytest.mark.parametrize("place", ["*:99999", "*:65536", "*:-1", "*:0", "*: 5", "*:", "*:\u0665", ":5557", "5557", ""])
def test_a_host_and_a_port_are_needed(place: str) -> None:
    """ZMQ takes 99999 for 34463, and connects to no host at all in silence."""
    with pytest.raises(BadInput) as caught:
        parse(OPTION, f"tcp://{place}")
    needed = "a host, and a port from 1 to 65535 or * for a free one, such as tcp://*:5557"
    assert str(caught.value) == f"--kv-events is tcp://{place}, but must be {needed}"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "*", "[::1]"])
def test_a_router_can_connect_to_a_local_address(host: str) -> None:
    if host == "[::1]" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    sockets = EventSockets(f"tcp://{host}:*", f"tcp://{ELSEWHERE}:5558", "topic")
    port = sockets.addresses[0].rpartition(":")[2]
    sockets.close()
    sockets = EventSockets(f"tcp://{host}:{port}", f"tcp://{ELSEWHERE}:5558", "topic")  # a fixed port, as users give it
    context = zmq.Context()
    router = context.socket(zmq.SUB)
    router.subscribe(b"")
    router.ipv6 = host == "[::1]"
    router.connect(f"tcp://{'127.0.0.1' if host == '*' else host}:{port}")
    while not router.poll(10):  # a subscription takes a moment to arrive
        sockets.send(0, b"payload")
    assert router.recv_multipart()[0] == b"topic"
    listens, connects = sockets.description.splitlines()
    assert listens.startswith("--kv-events listens on tcp://")
    assert listens.endswith(f":{port}")
    assert connects == f"--kv-events-replay connects to tcp://{ELSEWHERE}:5558"
    context.destroy(linger=0)
    sockets.close()


def _link_local_addresses() -> list[str]:
    """Return this machine's link-local addresses, each with its zone, where Linux lists them."""
    file = Path("/proc/net/if_inet6")
    rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [f"{ipaddress.IPv6Address(bytes.fromhex(row[0]))}%{row[5]}" for row in rows if row[0].startswith("fe80")]


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
