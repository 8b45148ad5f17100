"""How chunks of an answer go over HTTP as they come: server-sent events, or lines of JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from starlette.responses import StreamingResponse

from samebits.server.http.error_shapes import Shape, messages_error, ollama_error, openai_error
from samebits.server.http.errors import ApiError, from_exception
from samebits.server.http.json_output import json_text

log = logging.getLogger("samebits.server")
EVENTS_A_TURN = 16
Chunk = dict[str, Any] | Callable[[], dict[str, Any]]  # a large one is made and written on another thread
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True)
class Wire:
    """A protocol's way: how a chunk is written, what an error in mid-stream is, and what stands at the end."""

    media_type: str
    written: Callable[[dict[str, Any]], str]
    error: Shape
    last: str = ""


def _event(chunk: dict[str, Any]) -> str:
    return f"data: {json_text(chunk)}\n\n"


def _named_event(chunk: dict[str, Any]) -> str:
    return f"event: {chunk['type']}\n{_event(chunk)}"


def _line(chunk: dict[str, Any]) -> str:
    return json_text(chunk) + "\n"


def _responses_error(error: ApiError) -> dict[str, Any]:
    """The sequence number is not known here, and no client looks at it."""
    return {"type": "error", "code": error.code, "message": str(error), "param": error.param, "sequence_number": 0}


OPENAI = Wire(EVENT_STREAM, _event, openai_error, "data: [DONE]\n\n")
RESPONSES = Wire(EVENT_STREAM, _named_event, _responses_error)
MESSAGES = Wire(EVENT_STREAM, _named_event, messages_error)
OLLAMA = Wire("application/x-ndjson", _line, ollama_error)


def event_stream(chunks: AsyncIterator[Chunk], request_id: str, wire: Wire = OPENAI) -> StreamingResponse:
    """Chunks on their way; an error in mid-stream is one too. Leaving them unread ends the request."""
    return StreamingResponse(_written(chunks, request_id, wire), media_type=wire.media_type, headers=HEADERS)


async def _written(chunks: AsyncIterator[Chunk], request_id: str, wire: Wire) -> AsyncIterator[str]:
    num_sent = 0
    try:
        async for chunk in chunks:
            yield await asyncio.to_thread(_made, chunk, wire) if callable(chunk) else wire.written(chunk)
            num_sent += 1
            if num_sent % EVENTS_A_TURN == 0:
                # many chunks may be ready at once, and nothing else would give other clients a turn
                await asyncio.sleep(0)
    except Exception as error:
        log.exception("%s failed in mid-stream", request_id)
        yield wire.written(wire.error(from_exception(error)))
    if wire.last:
        yield wire.last


def _made(make: Callable[[], dict[str, Any]], wire: Wire) -> str:
    return wire.written(make())
