"""Which end of a ZMQ connection this server is: it listens on its own addresses and connects to all others."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, NamedTuple

from samebits.core.errors import BadInput

TCP, IPC = "tcp://", "ipc://"
WILDCARD = "*"
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class Endpoint(NamedTuple):
    """An address as ZMQ takes it, and whether to bind it (listen) or to connect to it."""

    address: str
    is_bound: bool
    is_ipv6: bool = False


def parse(option: str, address: str) -> Endpoint:
    """Decide which end of `address` this server is.

    Raise BadInput, naming `option`, if it is neither ipc:// nor tcp:// with a host and a port that ZMQ takes as given.
    A path is bound. So is a host that is `*`, an interface of this machine, or an address or a name of this machine;
    ZMQ binds numeric addresses alone, so a local name is replaced by its address.
    """
    if address.startswith(IPC):
        return Endpoint(address, True)
    if not address.startswith(TCP):
        raise BadInput("serve", option, address, "an address such as tcp://*:5557")
    host, _, port = address.removeprefix(TCP).rpartition(":")
    is_port = port == WILDCARD or (port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65535)
    if not host or not is_port:
        needed = "a host, and a port from 1 to 65535 or * for a free one, such as tcp://*:5557"
        raise BadInput("serve", option, address, needed)
    bare = host.removeprefix("[").removesuffix("]")
    if host == WILDCARD or host in _interfaces():
        return Endpoint(address, True)
    found = _resolved(bare)
    if not found or not all(map(_is_local, found)):
        needs_ipv6 = not any(ip.version == 4 for ip in found)  # a name that is not known yet may have either kind
        return Endpoint(address, port == WILDCARD, needs_ipv6)  # only a socket that listens may choose its port
    chosen = next((ip for ip in found if ip.version == 4), found[0])
    shown = f"[{chosen}]" if chosen.version == 6 else str(chosen)
    return Endpoint(f"{TCP}{shown}:{port}", True, chosen.version == 6)


def _interfaces() -> set[str]:
    try:
        return {name for _, name in socket.if_nameindex()}
    except OSError:
        return set()


def _resolved(host: str) -> list[IpAddress]:
    """Return the addresses of a host, or none if it has no name yet: ZMQ then keeps trying to connect."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
    except (OSError, UnicodeError):
        return []
    return [_ip_of(place) for *_, place in found]


def _ip_of(place: tuple[Any, ...]) -> IpAddress:
    """Return the address of a resolver's answer, with the interface that a link-local one belongs to."""
    zone = place[3] if len(place) == 4 else 0  # (address, port, flow, zone) for IPv6
    return ipaddress.ip_address(f"{place[0]}%{socket.if_indextoname(zone)}" if zone else place[0])


def _is_local(ip: IpAddress) -> bool:
    """Return whether this machine may listen on an address, which only the system knows: it lets a socket bind it."""
    if ip.is_loopback or ip.is_unspecified:
        return True
    text, _, zone = str(ip).partition("%")
    try:
        with socket.socket(socket.AF_INET6 if ip.version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((text, 0, 0, socket.if_nametoindex(zone)) if zone else (text, 0))
    except OSError:
        return False
    return not ip.is_multicast
