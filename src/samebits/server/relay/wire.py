"""Messages between who asks and who answers: JSON behind its length. Whoever reads one checks what it says.

A message is a list: the request's number, a kind, and

    accepted   edition
    first      cached prompt tokens, log-probabilities of the prompt or null; ahead of the first piece
    piece      sample, then the fields of a Piece, those at the end left out that say nothing
    ended      the reason of a failure, or null
    refused    the kind of error, its text, and for wrong input where and which
    cancel     nothing: the one message that goes the other way
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from samebits.core.errors import BadInput
from samebits.engine.answer import Piece
from samebits.engine.async_engine import QueueFull
from samebits.engine.job import DeadlinePassed, RequestFailed
from samebits.engine.text_logprobs import PromptLogprobs
from samebits.receipts.record import Receipt, from_json
from samebits.server.http.errors import ApiError
from samebits.server.relay.ask import Lost, WrongEdition

ACCEPTED, FIRST, PIECE, ENDED, REFUSED, CANCEL = "accepted", "first", "piece", "ended", "refused", "cancel"
LENGTH = struct.Struct("<I")
MAX_MESSAGE_BYTES = 256 << 20  # a receipt, or a prompt's log-probabilities
SECRET_BYTES = 32
ERRORS: dict[str, type[Exception]] = {"full": QueueFull, "edition": WrongEdition, "late": DeadlinePassed}
ERRORS |= {"failed": RequestFailed}  # the last one: DeadlinePassed is one too


class Garbled(Exception):
    """Bytes that are no message of ours; the connection they came on is of no use."""


def pack(message: list[Any]) -> bytes:
    data = json.dumps(message, separators=(",", ":")).encode()
    return LENGTH.pack(len(data)) + data


class Unpacker:
    """Messages out of bytes as they come."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[list[Any]]:
        """Those that are whole now; Garbled for anything else."""
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            (num_bytes,) = LENGTH.unpack_from(self._buffer)
            if num_bytes > MAX_MESSAGE_BYTES:
                raise Garbled(f"a message of {num_bytes} bytes")
            end = LENGTH.size + num_bytes
            if len(self._buffer) < end:
                return
            try:
                message = json.loads(self._buffer[LENGTH.size : end])
            except (ValueError, RecursionError) as error:
                raise Garbled(str(error)) from None
            del self._buffer[:end]
            if not (isinstance(message, list) and len(message) >= 2 and isinstance(message[0], int)):
                raise Garbled("no message")
            yield message


_PIECE_FIELDS = tuple(field.name for field in fields(Piece) if field.name != "receipt")


def piece_row(piece: Piece) -> list[Any]:
    """A piece as JSON takes it."""
    row: list[Any] = [getattr(piece, name) for name in _PIECE_FIELDS]
    row.append(None if piece.receipt is None else piece.receipt.to_json().decode("utf-8", "surrogatepass"))
    while row[-1] in (None, ()) and len(row) > 2:
        row.pop()
    return row


def piece_of(row: list[Any]) -> Piece:
    """The piece again; Garbled where it is none."""
    try:
        values = dict(zip(_PIECE_FIELDS, row, strict=False))
        token, text = values.pop("token_id"), values.pop("text")
        if not (token is None or isinstance(token, int)) or not isinstance(text, str):
            raise TypeError("a token is a number and its text a text")
        values["top_logprobs"] = _pairs(values.get("top_logprobs") or ())
        receipt = _receipt(row[len(_PIECE_FIELDS)]) if len(row) > len(_PIECE_FIELDS) else None
        return Piece(token, text, **values, receipt=receipt)
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
        raise Garbled(f"no piece: {error}") from None


def _receipt(text: str) -> Receipt:
    """As it was before it was written, which added its own SHA-256."""
    return replace(from_json(text.encode("utf-8", "surrogatepass")), sha256=None)


def _pairs(rows: Any) -> tuple[tuple[int, float], ...]:
    return tuple((int(token), float(value)) for token, value in rows)


def logprobs_row(found: PromptLogprobs | None) -> list[Any] | None:
    return None if found is None else [found.token_logprobs, found.top]


def logprobs_of(row: Any) -> PromptLogprobs | None:
    """A prompt's log-probabilities again; Garbled where it is something else."""
    if row is None:
        return None
    try:
        chosen, top = row
        return PromptLogprobs(tuple(float(x) for x in chosen), tuple(_pairs(pairs) for pairs in top))
    except (TypeError, ValueError, OverflowError) as error:
        raise Garbled(f"no log-probabilities: {error}") from None


def error_row(error: Exception) -> list[Any]:
    """A refusal as JSON takes it; what we do not know is a failure of the request."""
    if isinstance(error, BadInput):
        return ["input", error.where, error.argument, error.given, error.needed]
    if isinstance(error, ApiError) and error.status == 503:
        return ["full", str(error)]
    kind = next((kind for kind, known in ERRORS.items() if isinstance(error, known)), "failed")
    return [kind, str(error)]


def error_of(row: list[Any]) -> Exception:
    """The refusal again."""
    kind, text = str(row[0]), str(row[1])
    if kind == "input" and len(row) == 5:
        return BadInput(*map(str, row[1:]))
    return ERRORS.get(kind, Lost)(text)
