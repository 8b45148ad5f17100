"""A client's connection: which phase of a request it is in, and for how long it may stay there."""

from __future__ import annotations

import asyncio
import enum
import http
import ipaddress
import json
import socket
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from samebits.core.printable import printable
from samebits.server.http.errors import ApiError
from samebits.server.http.framing import StrictConnection
from samebits.server.http.leaving import LeavingTransport
from samebits.server.limits import LINGER_SECONDS, MIN_BODY_BYTES_PER_SECOND, RETRY_AFTER_SECONDS, STALL_BYTES, Limits

if TYPE_CHECKING:
    from samebits.server.http.guard import Guard

SEND_BUFFER_BYTES = (
    1 << 18
)  # of the system's send buffer, which would grow to megabytes for a client that does not read


class Phase(enum.Enum):
    """What a connection waits for. The values tell in the log why a connection was closed in that phase."""

    HEAD = "with a head that came too slowly"
    BODY = "with a body that came too slowly"
    ANSWER = "under an answer"
    IDLE = "between requests"
    LINGER = "with a body that nobody wants"
    STALLED = "with an answer that is not read"
    CLOSING = "that do not read their end"


OURS = (Phase.ANSWER, Phase.STALLED)  # a request is complete, and its answer is due


def address_of(client: tuple[str, int] | None) -> str:
    """The client that a connection counts for: its address, or with IPv6 its network of 2**64 addresses."""
    try:
        found = ipaddress.ip_address(client[0] if client else "")
    except ValueError:
        return "unknown"
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found), 64), strict=False))


class Connection(H11Protocol):
    """uvicorn's connection over h11, with strict framing. `guard` holds all connections of a server."""

    guard: Guard

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn: StrictConnection = StrictConnection()
        self.address = ""
        self._num_bytes = self._num_resumes = 0
        self._mark: tuple[object, ...] = ()
        self._since, self._num_bytes_then = 0.0, 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._leaving = LeavingTransport(transport, self._may_send)
        super().connection_made(self._leaving)  # type: ignore[arg-type]
        self.address = address_of(self.client)
        if (system := transport.get_extra_info("socket")) is not None:
            system.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.guard.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.guard.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._num_bytes += len(data)
        if not self._leaving.is_leaving:
            super().data_received(data)

    def _may_send(self) -> bool:
        """Return whether more of a request may come: one has begun that is not complete, or is not HTTP at all."""
        has_begun = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        return has_begun or self.conn.their_state in (h11.SEND_BODY, h11.ERROR)

    def shutdown(self) -> None:
        if self._leaving.is_leaving:
            self._leaving.close_now()
        else:
            super().shutdown()

    def resume_writing(self) -> None:
        self._num_resumes += 1
        super().resume_writing()

    def _unsupported_upgrade_warning(self) -> None:
        """Does nothing: a request to upgrade is answered as an ordinary one."""

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls when h11 cannot go on: one answer that says why, and the end of the connection."""
        fault = self.conn.fault
        self.guard.note("closed: not the HTTP that this server takes", self.address)
        reason = printable(fault or msg)
        self.refuse(ApiError(fault.error_status_hint if fault else 400, reason, code="invalid_http"))

    def refuse(self, error: ApiError) -> None:
        """Answers with an error, unless an answer is under way, and closes the connection."""
        cycle = self.cycle
        is_answering = cycle is not None and not cycle.response_complete
        if not (is_answering and cycle.response_started):
            self.transport.write(raw_answer(error))  # past h11, whose state may be anything
        if is_answering:
            cycle.disconnected = True
            cycle.message_event.set()
        self._leaving.leave()  # the request may be on its way

    @property
    def phase(self) -> Phase:
        if self._leaving.is_leaving:
            return Phase.LINGER
        if self.transport.is_closing():
            return Phase.CLOSING
        if self.flow.write_paused:
            return Phase.STALLED
        has_body_to_come = self.conn.their_state is h11.SEND_BODY
        if self.cycle is not None and not self.cycle.response_complete:
            return Phase.BODY if has_body_to_come and not self.flow.read_paused else Phase.ANSWER
        if has_body_to_come:
            return Phase.LINGER
        return Phase.HEAD if self.cycle is None or self.conn.trailing_data[0] else Phase.IDLE

    def is_overdue(self, now: float, limits: Limits) -> bool:
        """Whether the connection has been in its phase for too long without progress. To be asked periodically."""
        phase, unread = self.phase, self.transport.get_write_buffer_size() // STALL_BYTES
        mark = (phase, self.cycle, self._num_resumes, unread)
        if mark != self._mark:
            self._mark, self._since, self._num_bytes_then = mark, now, self._num_bytes
        allowed = {
            Phase.HEAD: limits.arrival_seconds,
            Phase.BODY: limits.arrival_seconds + (self._num_bytes - self._num_bytes_then) / MIN_BODY_BYTES_PER_SECOND,
            Phase.LINGER: LINGER_SECONDS,
            Phase.STALLED: limits.stall_seconds,
            Phase.CLOSING: limits.stall_seconds,
        }
        return phase in allowed and now - self._since > allowed[phase]

    def end(self, limits: Limits) -> None:
        """Closes the connection because its phase took too long; tells the client where it may still listen."""
        phase = self.phase
        if phase in (Phase.STALLED, Phase.CLOSING):
            self.transport.abort()
        elif phase is Phase.LINGER or not self._num_bytes:
            self._leaving.close_now()
        else:
            needed = f"within {limits.arrival_seconds:g} s, at {MIN_BODY_BYTES_PER_SECOND} bytes per second or more"
            message = f"the {phase.name.lower()} of the request came too slowly: it must come {needed}"
            self.refuse(ApiError(408, message, code="request_timeout"))


def raw_answer(error: ApiError) -> bytes:
    """An error as the bytes of a whole response after which the connection is closed."""
    body = json.dumps(error.as_json()).encode()
    phrase = http.HTTPStatus(error.status).phrase
    lines = [f"HTTP/1.1 {error.status} {phrase}", "content-type: application/json", f"content-length: {len(body)}"]
    if error.status == 503:
        lines.append(f"retry-after: {RETRY_AFTER_SECONDS}")
    return "\r\n".join([*lines, "connection: close", "", ""]).encode() + body
