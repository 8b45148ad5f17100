"""A client that sends bytes as it likes."""

from __future__ import annotations

import socket
from contextlib import closing
from urllib.parse import urlsplit


def open_socket(url: str, seconds: float = 20.0, receive_bytes: int | None = None) -> socket.socket:
    """Return a connection; `receive_bytes` bounds what the system keeps unread for it."""
    parts, sock = urlsplit(url), socket.socket()
    if receive_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)  # before it connects
    sock.settimeout(seconds)
    try:
        sock.connect((str(parts.hostname), parts.port or 80))
    except BaseException:
        sock.close()
        raise
    return sock


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
