"""A client that sends bytes as it likes."""

from __future__ import annotations

import socket
from contextlib import closing
from urllib.parse import urlsplit


def open_socket(url: str, seconds: float = 20.0) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((str(parts.hostname), parts.port or 80), seconds)


def read_to_end(sock: socket.socket) -> bytes:
    """All that comes until the server closes; TimeoutError where it does not."""
    data = b""
    try:
        while part := sock.recv(1 << 16):
            data += part
    except ConnectionResetError:
        pass  # closed with some of ours unread
    return data


def exchange(url: str, data: bytes, seconds: float = 20.0) -> bytes:
    """What the server answers to some bytes until it closes the connection."""
    with closing(open_socket(url, seconds)) as sock:
        sock.sendall(data)
        return read_to_end(sock)
