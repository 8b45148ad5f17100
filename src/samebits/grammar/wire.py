"""What an engine's process and the processes of its grammars say to each other, over Unix sockets."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

HEAD = struct.Struct("<cII")  # kind, a number (of a sample, or of bytes), payload bytes
ASK = struct.Struct("<cII")  # kind, sample, token
FORK = b"f"  # travels with a socket: whoever gets it forks a child that talks through that socket

# kinds of a format's source, the first thing a compiling child is sent
JSON_SCHEMA, REGEX, LARK, GRAMMAR = b"j", b"r", b"l", b"g"
KINDS = {"json_schema": JSON_SCHEMA, "regex": REGEX, "lark": LARK, "grammar": GRAMMAR}  # as receipts name them
# kinds of replies
HELLO, COMPILED, REFUSED, MASK, STOPPED = b"h", b"c", b"e", b"m", b"s"
# kinds of questions
OPEN, TOKEN = b"o", b"t"


@dataclass(frozen=True)
class Bounds:
    """What the processes of grammars may use.

    compile_seconds     CPU time for compiling; `wall_factor` times that in wall time
    compile_bytes       memory beyond the vocabulary's
    answer_bytes        memory beyond the compiled format's, for the masks of one request
    burst_seconds       CPU time for masks, at once ...
    mask_seconds        ... and on average over all masks of a request
    """

    compile_seconds: float
    wall_factor: float = 4.0
    compile_bytes: int = 128 << 20
    answer_bytes: int = 64 << 20
    burst_seconds: float = 0.2
    mask_seconds: float = 0.01


def frame(kind: bytes, number: int = 0, payload: bytes = b"") -> bytes:
    return HEAD.pack(kind, number, len(payload)) + payload


def receive(stream: socket.socket, num_bytes: int) -> bytes:
    """Exactly that many bytes; EOFError where the other side has gone."""
    data = bytearray()
    while len(data) < num_bytes:
        part = stream.recv(num_bytes - len(data))
        if not part:
            raise EOFError("the other side has gone")
        data += part
    return bytes(data)


def receive_frame(stream: socket.socket) -> tuple[bytes, int, bytes]:
    """The next frame's kind, number and payload; EOFError where the other side has gone."""
    kind, number, num_bytes = HEAD.unpack(receive(stream, HEAD.size))
    return kind, number, receive(stream, num_bytes)
